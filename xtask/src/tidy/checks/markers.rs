//! No leftovers: no marker for later work, no debug macro, no ignored test.

use crate::tidy::Problem;
use crate::tidy::rust::{Kind, Source};
use crate::tidy::tree::Tree;

/// Written in two pieces, so that this file passes its own check.
const WORDS: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X"), concat!("HA", "CK")];
const CONFLICTS: &[&str] = &["<<<<<<< ", ">>>>>>> "];
const MACROS: &[&str] = &["dbg", "todo", "unimplemented"];
const UNTESTED: &str = concat!("```", "ignore");

pub(in crate::tidy) fn check(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (path, text) in tree.texts("") {
        for (index, line) in text.lines().enumerate() {
            for word in WORDS.iter().filter(|word| contains_word(line, word)) {
                let fix = "do it now, or open an issue and say in the code only what holds today";
                problems.push(Problem::new(path, index + 1, format!("the marker {word}"), fix));
            }
            if CONFLICTS.iter().any(|conflict| line.starts_with(conflict)) {
                problems.push(Problem::new(path, index + 1, "a merge conflict", "resolve it"));
            }
        }
    }
    for (path, text) in tree.texts(".rs") {
        let source = Source::read(text);
        for (line, name) in source.macro_calls(MACROS) {
            let what = format!("`{name}!` is left over");
            problems.push(Problem::new(path, line, what, "write the code, or remove it"));
        }
        let is_ignore = |kind| kind == Kind::Ident("ignore");
        for attribute in source.attributes() {
            if attribute.tokens.iter().any(|token| is_ignore(token.kind)) {
                let fix = "make the test fast and steady, or delete it";
                problems.push(Problem::new(path, attribute.line, "a test that is switched off", fix));
            }
        }
        for comment in &source.comments {
            if comment.text.contains(UNTESTED) {
                let fix = "let the example compile; `no_run` is enough where it must not run";
                problems.push(Problem::new(path, comment.line, "an example that is not compiled", fix));
            }
        }
    }
    problems
}

fn contains_word(line: &str, word: &str) -> bool {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word)
        .any(|(at, _)| !line[..at].ends_with(is_name) && !line[at + word.len()..].starts_with(is_name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::planted::lines;

    #[test]
    fn every_marker_is_found_in_every_kind_of_file() {
        for word in ["todo", "fixme", "xxx", "hack"].map(str::to_uppercase) {
            for path in ["src/a.rs", "docs/a.md", "a.lua", "run", ".github/a.yml"] {
                assert_eq!(lines(check, path, &format!("\n-- {word}: later\n")), [2], "{path} {word}");
            }
            assert_eq!(lines(check, "a.md", &format!("{word}S a{word} {word}_A")), [0; 0]);
            assert_eq!(lines(check, "a/vendor/b.js", &word), [0; 0]);
        }
        for conflict in CONFLICTS {
            assert_eq!(lines(check, "a.md", &format!("{conflict}HEAD")), [1]);
        }
    }

    #[test]
    fn leftover_code_is_found() {
        let bad = [
            "dbg!(a)",
            "todo!()",
            "unimplemented!(\"b\")",
            "#[ignore]",
            "#[ignore = \"slow\"]",
            "#[cfg_attr(miri, ignore)]",
            &format!("/// {UNTESTED}"),
        ];
        for text in bad {
            assert_eq!(lines(check, "src/a.rs", &format!("\n{text}\n")), [2], "{text}");
        }
        assert_eq!(lines(check, "src/a.rs", "// dbg!(a)\nlet ignore = \"todo!()\";"), [0; 0]);
    }
}
