//! Every exception from a lint, and every use of unsafe code, says why.

use crate::tidy::Problem;
use crate::tidy::rust::{Kind, Source, Token, group_len};
use crate::tidy::tree::Tree;

pub(in crate::tidy) fn check(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (path, text) in tree.texts(".rs") {
        let source = Source::read(text);
        for attribute in source.attributes() {
            if (0..attribute.tokens.len()).any(|at| is_silent_exception(&attribute.tokens[at..])) {
                let what = "an exception from a lint without a reason";
                let fix = "write `#[expect(lint, reason = \"…\")]`, or `allow` if it does not always fire";
                problems.push(Problem::new(path, attribute.line, what, fix));
            }
        }
        let is_unsafe = |kind| kind == Kind::Ident("unsafe");
        for token in source.tokens.iter().filter(|token| is_unsafe(token.kind)) {
            if !is_explained(text, token.line) {
                let fix = "say above it, in a `// SAFETY:` comment, why it is sound; or do without";
                problems.push(Problem::new(path, token.line, "unsafe code without a reason", fix));
            }
        }
    }
    for (path, text) in tree.texts("Cargo.toml") {
        let lines: Vec<&str> = text.lines().collect();
        for (index, line) in lines.iter().enumerate() {
            let explained =
                line.contains('#') || index.checked_sub(1).is_some_and(|above| lines[above].starts_with('#'));
            if line.contains("\"allow\"") && !explained {
                let fix = "say why in a comment on the line or above it";
                problems.push(Problem::new(path, index + 1, "a lint switched off without a reason", fix));
            }
        }
    }
    problems
}

/// Whether these tokens begin with an `allow(…)` or `expect(…)` that has no `reason = …`.
fn is_silent_exception(tokens: &[Token<'_>]) -> bool {
    let [name, rest @ ..] = tokens else { return false };
    let opens = rest.first().is_some_and(|token| token.kind == Kind::Punct('('));
    if !matches!(name.kind, Kind::Ident("allow" | "expect")) || !opens {
        return false;
    }
    let group = &rest[..group_len(rest)];
    !group.windows(3).any(|three| {
        let reason = three[0].kind == Kind::Ident("reason") && three[1].kind == Kind::Punct('=');
        reason && matches!(three[2].kind, Kind::Text(text) if !text.trim().is_empty())
    })
}

/// Whether `SAFETY:` is on the line, or in the comment directly above it.
fn is_explained(text: &str, line: usize) -> bool {
    let lines: Vec<&str> = text.lines().take(line).collect();
    let Some((own, above)) = lines.split_last() else { return false };
    let comment = above.iter().rev().map(|line| line.trim()).take_while(|line| line.starts_with("//"));
    own.contains("// SAFETY:") || comment.into_iter().any(|line| line.starts_with("// SAFETY:"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::planted::lines;

    #[test]
    fn silent_exceptions_are_found() {
        let bad = [
            "#[allow(dead_code)]",
            "#![allow(dead_code)]",
            "#[expect(clippy::all)]",
            "#[expect(dead_code, reason = \"\")]",
            "#[cfg_attr(test, allow(dead_code))]",
            "unsafe { a() }",
            "pub unsafe fn a() {}",
            "#[unsafe(no_mangle)]",
        ];
        for text in bad {
            assert_eq!(lines(check, "src/a.rs", &format!("// why\n{text}\n")), [2], "{text}");
        }
        assert_eq!(lines(check, "a/Cargo.toml", "[lints.rust]\n\nunsafe_code = \"allow\"\n"), [3]);
        assert_eq!(lines(check, "a/Cargo.toml", "a = { level = \"allow\", priority = 1 }\n"), [1]);
    }

    #[test]
    fn explained_exceptions_pass() {
        let good = [
            "#[expect(dead_code, reason = \"the other half is a macro\")]",
            "#[cfg_attr(unix, allow(dead_code, reason = \"windows calls it\"))]",
            "// SAFETY: the pointer is ours.\n// And it is not null.\nunsafe { a() }",
            "unsafe { a() } // SAFETY: it is ours",
            "let allow = expect(a).expect(\"b\");",
            "// unsafe, #[allow(dead_code)]",
            "#![forbid(unsafe_code)]",
        ];
        for text in good {
            assert_eq!(lines(check, "src/a.rs", text), [0; 0], "{text}");
        }
        let manifest = "# It fires on generated code.\nmissing_docs = \"allow\"\n";
        assert_eq!(lines(check, "Cargo.toml", manifest), [0; 0]);
    }
}
