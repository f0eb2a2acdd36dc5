//! Plain text: no blanks at the end of a line, no tabs, a newline at the end of the file, no path of one machine.

use crate::tidy::Problem;
use crate::tidy::tree::Tree;

/// Folders of a person or a build machine. Written in two pieces, so that this file passes its own check.
const MACHINE_PATHS: &[&str] =
    &[concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/"), concat!("/Us", "ers/")];

pub(in crate::tidy) fn check(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (path, text) in tree.texts("") {
        let no_tabs = path.ends_with(".rs") || path.ends_with(".md");
        for (index, line) in text.split_terminator('\n').enumerate() {
            let mut problem = |what: String, fix| problems.push(Problem::new(path, index + 1, what, fix));
            if line.trim_end() != line {
                problem("blanks at the end of the line".to_owned(), "delete them");
            }
            if no_tabs && line.contains('\t') {
                problem("a tab".to_owned(), "indent with blanks; write \\t in a string");
            }
            for folder in MACHINE_PATHS.iter().filter(|folder| names_path(line, folder)) {
                let what = format!("a path of one machine: {folder}");
                problem(what, "say it from the root of the repository");
            }
        }
        if !text.is_empty() && !text.ends_with('\n') {
            let last = text.lines().count();
            problems.push(Problem::new(path, last, "no newline at the end of the file", "add it"));
        }
    }
    problems
}

/// Whether the folder is at the beginning of a path, not in the middle.
fn names_path(line: &str, folder: &str) -> bool {
    let goes_on = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '~' | '}' | '/');
    line.match_indices(folder).any(|(at, _)| !line[..at].ends_with(goes_on))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::planted::lines;

    #[test]
    fn untidy_text_is_found() {
        let cases = [
            ("a.md", "one \ntwo\n", 1),
            ("a.yml", "one\ntwo\r\n", 2),
            ("a.rs", "one\n\ttwo\n", 2),
            ("a.md", "one\ttwo\n", 1),
            ("LICENSE", "one\ntwo", 2),
        ];
        for (path, text, line) in cases {
            assert_eq!(lines(check, path, text), [line], "{path} {text:?}");
        }
        for folder in MACHINE_PATHS {
            assert_eq!(lines(check, "a.toml", &format!("\nsee `{folder}a`\n")), [2], "{folder}");
            assert_eq!(lines(check, "a.toml", &format!("get /v1{folder}a\n")), [0; 0], "{folder}");
        }
    }

    #[test]
    fn tidy_text_and_foreign_text_pass() {
        assert_eq!(lines(check, "Makefile", "all:\n\ttrue\n"), [0; 0]);
        assert_eq!(lines(check, "a/vendor/b.js", "one \ntwo"), [0; 0]);
        assert_eq!(lines(check, "empty", ""), [0; 0]);
    }
}
