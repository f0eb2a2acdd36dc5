//! Checks docs/requirements.md: one entry per requirement, and one existing proof per bullet.
//!
//! An entry is a heading `### A1 Title`, a sentence, and a list. A bullet starts with a test in backticks, a link to a
//! page, or `Not yet`. After a colon it says what that proof shows, or what is missing.

use crate::tidy::Problem;
use crate::tidy::markdown::links;
use crate::tidy::rust::Source;
use crate::tidy::tree::Tree;
use std::collections::{BTreeMap, BTreeSet};

const PAGE: &str = "docs/requirements.md";
const NOT_YET: &str = "Not yet";
const BULLET_CHARS_MAX: usize = 160;
const FORMS: &str =
    "write `test_name`: what it shows, [page](page.md): what it shows, or Not yet: what is missing";

/// Number of requirements in each section.
const REQUIREMENTS: &[(char, u32)] =
    &[('A', 14), ('B', 8), ('C', 8), ('D', 6), ('E', 10), ('F', 9), ('G', 3), ('H', 7), ('I', 4), ('J', 3)];
const INVARIANTS: u32 = 21;

/// A heading of the page and what follows it.
struct Entry<'a> {
    line: usize,
    id: &'a str,
    has_title: bool,
    has_sentence: bool,
    bullets: Vec<(usize, &'a str)>,
}

pub(in crate::tidy) fn check(tree: &Tree) -> Vec<Problem> {
    let Some((_, text)) = tree.texts(PAGE).find(|(path, _)| *path == PAGE) else {
        return vec![Problem::new(PAGE, 1, "the page is missing", "write it: one entry per requirement")];
    };
    let functions: BTreeSet<String> = tree
        .texts(".rs")
        .flat_map(|(_, text)| Source::read(text).functions().map(str::to_owned).collect::<Vec<String>>())
        .collect();
    let mut counts: BTreeMap<String, usize> = ids().into_iter().map(|id| (id, 0)).collect();
    let mut problems = Vec::new();
    for entry in entries(text) {
        let mut problem =
            |line: usize, what: String, fix: &str| problems.push(Problem::new(PAGE, line, what, fix));
        match counts.get_mut(entry.id) {
            Some(count) => {
                *count += 1;
                if *count > 1 {
                    let fix = "keep one entry per id";
                    problem(entry.line, format!("duplicate entry {}", entry.id), fix);
                }
            }
            None => problem(entry.line, format!("unknown requirement {}", entry.id), "use an id of the list"),
        }
        if !(entry.has_title && entry.has_sentence && !entry.bullets.is_empty()) {
            let fix = "write a title, a sentence that states the requirement, and one bullet per proof";
            problem(entry.line, format!("incomplete entry {}", entry.id), fix);
        }
        for (line, bullet) in entry.bullets {
            if let Err((what, fix)) = check_bullet(bullet, &functions) {
                problem(line, what, fix);
            }
        }
    }
    for (id, _) in counts.iter().filter(|(_, count)| **count == 0) {
        let fix = "add it; while nothing proves it, its bullet is: Not yet: what is missing";
        problems.push(Problem::new(PAGE, 1, format!("no entry for {id}"), fix));
    }
    problems
}

fn entries(text: &str) -> Vec<Entry<'_>> {
    let mut entries: Vec<Entry<'_>> = Vec::new();
    // False before the first entry, and between a section heading and the entry after it.
    let mut is_open = false;
    for (index, line) in text.lines().enumerate() {
        if let Some(heading) = line.strip_prefix("### ") {
            let (id, title) = split_id(heading);
            let has_title = !title.is_empty();
            entries.push(Entry { line: index + 1, id, has_title, has_sentence: false, bullets: Vec::new() });
            is_open = true;
        } else if line.starts_with('#') {
            is_open = false;
        } else if let (Some(entry), true) = (entries.last_mut(), is_open) {
            match line.strip_prefix("- ") {
                Some(bullet) => entry.bullets.push((index + 1, bullet)),
                None => entry.has_sentence |= !line.trim().is_empty(),
            }
        }
    }
    entries
}

/// Splits `A1 Title` and `Invariant I1 Title`.
fn split_id(heading: &str) -> (&str, &str) {
    let skipped = heading.strip_prefix("Invariant ").map_or(0, |rest| heading.len() - rest.len());
    let end = heading[skipped..].find(' ').map_or(heading.len(), |at| skipped + at);
    (&heading[..end], heading[end..].trim())
}

fn check_bullet(bullet: &str, functions: &BTreeSet<String>) -> Result<(), (String, &'static str)> {
    let length = bullet.chars().count();
    if length > BULLET_CHARS_MAX {
        let fix = "shorten it to 160 characters: one proof and a few words";
        return Err((format!("bullet of {length} characters"), fix));
    }
    let malformed = || ("malformed bullet".to_owned(), FORMS);
    if let Some(rest) = bullet.strip_prefix('`') {
        let (name, words) = rest.split_once("`: ").ok_or_else(malformed)?;
        let function = name.rsplit("::").next().unwrap_or(name);
        if !functions.contains(function) {
            return Err((format!("no test {name}"), "name a test function of this repository"));
        }
        return if words.trim().is_empty() { Err(malformed()) } else { Ok(()) };
    }
    let proof_and_words = match bullet.strip_prefix(NOT_YET) {
        Some(rest) => rest.strip_prefix(": "),
        None if bullet.starts_with('[') && links(bullet).len() == 1 => {
            bullet.split_once("): ").map(|(_, words)| words)
        }
        None => None,
    };
    proof_and_words.filter(|words| !words.trim().is_empty()).map(|_| ()).ok_or_else(malformed)
}

fn ids() -> Vec<String> {
    let requirements =
        REQUIREMENTS.iter().flat_map(|(kind, count)| (1..=*count).map(move |n| format!("{kind}{n}")));
    requirements.chain((1..=INVARIANTS).map(|n| format!("Invariant I{n}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::planted::found;

    const TESTS: (&str, &str) =
        ("crates/core/tests/a.rs", "#[test]\nfn proves_it() {}\n// fn only_talk() {}\n");

    /// A page with an entry for every id. A1 comes first, with this bullet on line 5.
    fn page(bullet: &str) -> String {
        let mut page = String::new();
        for id in ids() {
            let bullet = if id == "A1" { bullet } else { "Not yet: all of it." };
            page.push_str(&format!("### {id} Title\n\nSentence.\n\n- {bullet}\n\n"));
        }
        page
    }

    fn problems(page: &str) -> Vec<String> {
        found(check, &[(PAGE, page), TESTS])
    }

    #[test]
    fn a_bullet_starts_with_a_test_a_page_or_not_yet() {
        for bullet in [
            "Not yet: words.",
            "`proves_it`: words.",
            "`a::proves_it`: words, `code`.",
            "[page](a.md): words.",
        ] {
            assert_eq!(problems(&page(bullet)), [""; 0], "{bullet}");
        }
        for bullet in [
            "surely",
            "`proves_it`",
            "`proves_it`: ",
            "`only_talk`: words.",
            "`gone`: words.",
            "`proves_it` and `proves_it`: words.",
            "proved by `proves_it`: words.",
            "[page](a.md)",
            "[page](a.md), [page](b.md): words.",
            "Not yet",
            "not yet: words.",
        ] {
            assert_eq!(problems(&page(bullet)), ["docs/requirements.md:5"], "{bullet}");
        }
    }

    #[test]
    fn a_bullet_has_at_most_160_characters() {
        let bullet = |length: usize| format!("`proves_it`: {}", "é".repeat(length - 13));
        assert_eq!(problems(&page(&bullet(160))), [""; 0]);
        assert_eq!(problems(&page(&bullet(161))), ["docs/requirements.md:5"]);
    }

    #[test]
    fn an_entry_has_a_title_a_sentence_and_a_bullet() {
        let page = page("Not yet: words.");
        let entry = "### A1 Title\n\nSentence.\n\n- Not yet: words.\n";
        for incomplete in [
            "### A1\n\nSentence.\n\n- Not yet: words.\n",
            "### A1 Title\n\n- Not yet: words.\n",
            "### A1 Title\n\nSentence.\n",
            "### A1 Title\n\n## Section\n\nSentence.\n\n- Not yet: words.\n",
        ] {
            assert_eq!(
                problems(&page.replace(entry, incomplete)),
                ["docs/requirements.md:1"],
                "{incomplete}"
            );
        }
    }

    #[test]
    fn every_id_has_exactly_one_entry() {
        let page = page("Not yet: words.");
        let entry = "### A1 Title\n\nSentence.\n\n- Not yet: words.\n";
        let last = page.lines().count();
        assert_eq!(problems(&page.replace(entry, "")), ["docs/requirements.md:1"]);
        assert_eq!(problems(&format!("{page}{entry}")), [format!("docs/requirements.md:{}", last + 1)]);
        let unknown = entry.replace("A1", "A15");
        assert_eq!(problems(&format!("{page}{unknown}")), [format!("docs/requirements.md:{}", last + 1)]);
        let wrong = page.replace("Invariant I21", "I21");
        assert_eq!(
            problems(&wrong),
            ["docs/requirements.md:1".to_owned(), format!("docs/requirements.md:{}", last - 5)]
        );
        assert_eq!(found(check, &[]), ["docs/requirements.md:1"]);
    }
}
