//! Source files that have grown so long that they may have two reasons to change.

use crate::tidy::Problem;
use crate::tidy::rust::{Kind, Source};
use crate::tidy::tree::Tree;

const LINES_MAX: usize = 500;

/// Long files are warnings, not errors.
pub(in crate::tidy) fn warnings(tree: &Tree) -> Vec<Problem> {
    let mut warnings = Vec::new();
    for (path, text) in tree.texts(".rs").filter(|(path, _)| !is_test(path)) {
        let lines = source_lines(text);
        if lines > LINES_MAX {
            let what = format!("{lines} lines of source without tests, more than {LINES_MAX}");
            warnings.push(Problem::new(
                path,
                1,
                what,
                "ask whether it has two reasons to change; if so, split it",
            ));
        }
    }
    warnings
}

fn is_test(path: &str) -> bool {
    path.split('/').any(|part| matches!(part, "tests" | "benches" | "tests.rs"))
}

/// The lines outside of `#[cfg(test)] mod … { … }`.
fn source_lines(text: &str) -> usize {
    const TEST: [Kind<'_>; 7] = [
        Kind::Punct('#'),
        Kind::Punct('['),
        Kind::Ident("cfg"),
        Kind::Punct('('),
        Kind::Ident("test"),
        Kind::Punct(')'),
        Kind::Punct(']'),
    ];
    let source = Source::read(text);
    let mut lines = text.lines().count();
    for at in 0..source.tokens.len() {
        let kinds = source.tokens[at..].iter().map(|token| token.kind);
        let module = at + TEST.len();
        let is_module = source.kind(module) == Some(Kind::Ident("mod"));
        if kinds.take(TEST.len()).eq(TEST) && is_module && source.kind(module + 2) == Some(Kind::Punct('{')) {
            let end = source.tokens[source.closing(module + 2)].line;
            lines -= end - source.tokens[at].line + 1;
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::planted::found;

    #[test]
    fn long_source_is_found_and_tests_do_not_count() {
        let long = "fn a() {}\n".repeat(LINES_MAX + 1);
        let tests = format!("fn a() {{}}\n#[cfg(test)]\nmod tests {{\n{long}}}\n");
        assert_eq!(source_lines(&tests), 1);
        let just = "fn a() {}\n".repeat(LINES_MAX);
        let files = [
            ("a/src/long.rs", long.as_str()),
            ("a/src/just.rs", just.as_str()),
            ("a/src/tested.rs", tests.as_str()),
            ("a/src/long/tests.rs", long.as_str()),
            ("a/tests/long.rs", long.as_str()),
        ];
        assert_eq!(found(warnings, &files), ["a/src/long.rs:1"]);
    }
}
