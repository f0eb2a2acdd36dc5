//! Phrases that slow readers down, in comments, documents and strings. Each has a plain replacement.
//!
//! An exception is a comment on the same line or the line above: `tidy: allow(so many): quotes a song`.

use crate::tidy::Problem;
use crate::tidy::rust::{Kind, Source};
use crate::tidy::tree::Tree;

/// The phrase, in lower case, and what to write instead.
const PHRASES: &[(&str, &str)] = &[
    ("whoever", "name the actor: the caller, the client, the server, the thread"),
    ("nobody", "name the actor: \"no caller\", \"no rule\"; or say what does not happen"),
    ("somebody", "name the actor: another caller, another server, another thread"),
    ("is none", "say what it is: \"is invalid\", \"does not exist\", \"is not a number\""),
    ("are none", "say what they are: \"are invalid\", \"do not exist\""),
    ("so many", "write the number, \"N\", or \"as many as\""),
    ("so much", "write the amount, or \"N units\""),
    ("as a rule", "write \"usually\": this code base is about rules"),
    ("is told", "say how: \"receives\", \"is logged\", \"is returned\", \"is reported\""),
    ("are told", "say how: \"receive\", \"are logged\", \"are returned\", \"are reported\""),
    ("be told", "say how: \"receive\", \"be logged\", \"be returned\", \"be configured\""),
    ("was told", "say how: \"received\", \"was logged\", \"was configured\""),
    ("were told", "say how: \"received\", \"were logged\", \"were configured\""),
    ("told apart", "write \"distinguished\""),
    ("of its own", "write \"separate\" or \"its own X\""),
    ("of their own", "write \"separate\" or \"their own X\""),
    ("lies in", "write \"is in\" or \"is stored in\""),
    ("lie in", "write \"are in\" or \"are stored in\""),
    ("stands in", "write \"is in\" or \"replaces\""),
    ("at hand", "write \"available\""),
    ("anew", "write \"again\""),
    ("for whom", "name the subject, caller or client"),
    ("who asks", "write \"the caller\""),
    ("who waits", "write \"the waiting caller\" or \"the waiting thread\""),
    ("unsaid", "write \"not set\" or \"absent\""),
    ("dearest", "write \"most expensive\""),
    ("protocol of redis", "write \"Redis protocol (RESP)\""),
    ("client of redis", "write \"Redis client\""),
    ("clients of redis", "write \"Redis clients\""),
    ("store in memory", "write \"memory store\""),
    ("store in redis", "write \"Redis store\""),
];

/// Finds the phrases in all text that people read.
pub(in crate::tidy) fn check(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (path, text) in tree.texts("").filter(|(path, _)| is_read_by_people(path)) {
        let passages = match path.rsplit_once('.').map(|(_, ending)| ending) {
            Some("rs") => rust_passages(text),
            Some("md") => markdown_passages(text),
            Some("lua") => comment_passages(text, "--"),
            Some("toml" | "yaml" | "yml" | "sh" | "conf" | "cfg") => comment_passages(text, "#"),
            _ => continue,
        };
        let lines: Vec<&str> = text.lines().collect();
        for passage in passages {
            for (line, phrase, instead) in passage.phrases() {
                if !is_allowed(&lines, line, phrase) {
                    problems.push(Problem::new(path, line, format!("\"{phrase}\""), instead));
                }
            }
        }
    }
    problems
}

/// This file quotes every phrase; snapshots repeat strings that are checked where they are written.
fn is_read_by_people(path: &str) -> bool {
    path != "xtask/src/tidy/checks/phrases.rs" && !path.contains("/tests/broken/")
}

/// Text that reads as one piece, with the line of every word.
#[derive(Default)]
struct Passage {
    words: Vec<(usize, String)>,
}

impl Passage {
    fn add(&mut self, line: usize, text: &str) {
        // Every second part is code in backticks: one word that is in no phrase.
        for (index, part) in text.split('`').enumerate() {
            if index % 2 == 1 {
                self.words.push((line, "`".to_owned()));
                continue;
            }
            let words = part.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '\'');
            let words = words.filter(|word| !word.is_empty());
            self.words.extend(words.map(|word| (line, word.to_lowercase())));
        }
    }

    fn phrases(&self) -> Vec<(usize, &'static str, &'static str)> {
        let mut found = Vec::new();
        for at in 0..self.words.len() {
            for &(phrase, instead) in PHRASES {
                let mut rest = self.words[at..].iter().map(|(_, word)| word.as_str());
                if phrase.split(' ').all(|word| rest.next() == Some(word)) {
                    found.push((self.words[at].0, phrase, instead));
                }
            }
        }
        found
    }
}

/// Comments on consecutive lines are one passage; so is each string.
fn rust_passages(text: &str) -> Vec<Passage> {
    let source = Source::read(text);
    let mut passages: Vec<Passage> = Vec::new();
    let mut last = 0;
    for comment in &source.comments {
        if comment.line != last + 1 || passages.is_empty() {
            passages.push(Passage::default());
        }
        let passage = passages.last_mut().expect("one was pushed");
        for (offset, line) in comment.text.lines().enumerate() {
            passage.add(comment.line + offset, line);
            last = comment.line + offset;
        }
    }
    for token in &source.tokens {
        if let Kind::Text(text) = token.kind {
            let mut passage = Passage::default();
            // The token's line is the one on which the string begins.
            for (offset, line) in text.lines().enumerate() {
                passage.add(token.line + offset, &line.replace("\\n", " ").replace("\\\"", "\""));
            }
            passages.push(passage);
        }
    }
    passages
}

/// Paragraphs outside of code blocks. A heading, a list item or a table row may run into the next line; that is
/// harmless, because a phrase never spans two of them by accident.
fn markdown_passages(text: &str) -> Vec<Passage> {
    let mut passages = vec![Passage::default()];
    let mut in_code = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        } else if !in_code && !line.starts_with("    ") {
            if line.trim().is_empty() {
                passages.push(Passage::default());
            }
            passages.last_mut().expect("there is one from the start").add(index + 1, line);
        }
    }
    passages
}

fn comment_passages(text: &str, mark: &str) -> Vec<Passage> {
    let mut passages = vec![Passage::default()];
    for (index, line) in text.lines().enumerate() {
        match line.split_once(mark) {
            Some((_, comment)) => {
                passages.last_mut().expect("there is one from the start").add(index + 1, comment)
            }
            None => passages.push(Passage::default()),
        }
    }
    passages
}

/// Whether a comment on the line or above it allows the phrase and says why.
fn is_allowed(lines: &[&str], line: usize, phrase: &str) -> bool {
    let mark = format!("tidy: allow({phrase}): ");
    [line.checked_sub(2), line.checked_sub(1)].into_iter().flatten().any(|index| {
        let reason = lines.get(index).and_then(|line| Some(line.split_once(&mark)?.1));
        reason.is_some_and(|reason| reason.contains(char::is_alphabetic))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::planted::{found, lines};

    #[test]
    fn phrases_are_found_in_comments_strings_and_documents_only() {
        let rust = "//! Whoever asks.\nfn so_many() {}\nfn f() { let is_told = \"it is  told\"; }\n/* a\n is none */\n";
        assert_eq!(lines(check, "a.rs", rust), [1, 3, 5]);
        assert_eq!(lines(check, "a.md", "so\nmany\n\n```\nwhoever\n```\n"), [1]);
        assert_eq!(lines(check, "a.rs", "// it is `None`, so `many`\n// it is none\n"), [2]);
        assert_eq!(lines(check, "a.lua", "local nobody = 1 -- fine\n-- nobody\n"), [2]);
        assert_eq!(lines(check, "a.toml", "nobody = 1\n# nobody\n"), [2]);
    }

    #[test]
    fn phrases_across_lines_of_one_comment_are_found() {
        assert_eq!(lines(check, "a.rs", "// so\n// many\n\n// so\n\n// many\n"), [1]);
        assert_eq!(lines(check, "a.rs", "const A: &str = \"so \\\n    many\";\n"), [1]);
    }

    #[test]
    fn an_exception_needs_the_phrase_and_a_reason() {
        let allowed = "// tidy: allow(whoever): a quotation\n// whoever\n";
        assert_eq!(lines(check, "a.rs", allowed), Vec::<usize>::new());
        assert_eq!(lines(check, "a.rs", "// tidy: allow(whoever): \n// whoever\n"), [1, 2]);
        assert_eq!(lines(check, "a.rs", "// tidy: allow(nobody): a reason\n// whoever\n"), [2]);
    }

    #[test]
    fn snapshots_and_this_list_are_left_out() {
        let files = [
            ("crates/tollgate/tests/broken/a.md", "whoever\n"),
            ("xtask/src/tidy/checks/phrases.rs", "// whoever\n"),
        ];
        assert_eq!(found(check, &files), Vec::<String>::new());
    }

    #[test]
    fn every_phrase_is_lower_case_and_listed_once() {
        for (at, (phrase, instead)) in PHRASES.iter().enumerate() {
            assert_eq!(*phrase, phrase.to_lowercase());
            assert!(!instead.is_empty());
            assert!(PHRASES[..at].iter().all(|(other, _)| other != phrase), "{phrase}");
        }
    }
}
