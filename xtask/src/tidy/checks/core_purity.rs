//! The core reads no clock, does no I/O, and computes with integers only.

use crate::tidy::Problem;
use crate::tidy::rust::{Kind, Path, Source};
use crate::tidy::tree::Tree;

const CORE: &str = "crates/core/src/";

/// Paths that may not be named, and what they are. `_` stands for any one segment.
const PATHS: &[(&[&str], Reason)] = &[
    (&["_", "now"], Reason::Clock),
    (&["TimeZone", "system"], Reason::Machine),
    (&["TimeZone", "try_system"], Reason::Machine),
    (&["std", "env"], Reason::Machine),
    (&["std", "fs"], Reason::Io),
    (&["std", "io"], Reason::Io),
    (&["std", "net"], Reason::Io),
    (&["std", "os"], Reason::Machine),
    (&["std", "process"], Reason::Machine),
    (&["std", "thread"], Reason::Threads),
];

const MACROS: &[&str] = &["print", "println", "eprint", "eprintln"];

#[derive(Clone, Copy)]
enum Reason {
    Clock,
    Io,
    Machine,
    Threads,
}

impl Reason {
    fn what(self) -> &'static str {
        match self {
            Self::Clock => "reads a clock",
            Self::Io => "does I/O",
            Self::Machine => "depends on the machine it runs on",
            Self::Threads => "knows threads",
        }
    }

    fn fix(self) -> &'static str {
        match self {
            Self::Clock => "take `now` as an argument",
            Self::Io => "return a value and let crates/tollgate do the I/O",
            Self::Machine => "take the value as an argument",
            Self::Threads => "leave threads to crates/tollgate",
        }
    }
}

pub(in crate::tidy) fn check(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (path, text) in tree.texts(".rs").filter(|(path, _)| path.starts_with(CORE)) {
        let source = Source::read(text);
        for named in source.paths() {
            if let Some((_, reason)) = PATHS.iter().find(|(banned, _)| names(&named, banned)) {
                let what = format!("`{}` in the core, which {}", named.segments.join("::"), reason.what());
                problems.push(Problem::new(path, named.line, what, reason.fix()));
            }
        }
        // A value of `SystemTime` may be converted, but not compared with the clock.
        let calls = source
            .tokens
            .windows(2)
            .filter(|pair| pair[0].kind == Kind::Punct('.') && pair[1].kind == Kind::Ident("elapsed"));
        for call in calls {
            let what = format!("`elapsed` in the core, which {}", Reason::Clock.what());
            problems.push(Problem::new(path, call[1].line, what, Reason::Clock.fix()));
        }
        for (line, name) in source.macro_calls(MACROS) {
            let what = format!("`{name}!` in the core, which prints");
            problems.push(Problem::new(path, line, what, Reason::Io.fix()));
        }
        for token in &source.tokens {
            let float = match token.kind {
                Kind::Float => Some("a float literal"),
                Kind::Ident(name) => is_float_name(name).then_some(name),
                _ => None,
            };
            if let Some(float) = float {
                let fix = "count in integers: the smallest unit, or a reduced fraction";
                problems.push(Problem::new(path, token.line, format!("{float} in the core"), fix));
            }
        }
    }
    problems
}

fn names(path: &Path<'_>, banned: &[&str]) -> bool {
    path.segments
        .windows(banned.len())
        .any(|window| window.iter().zip(banned).all(|(found, banned)| *banned == "_" || found == banned))
}

fn is_float_name(name: &str) -> bool {
    matches!(name.rsplit('_').next(), Some("f32" | "f64"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::planted::{found, lines};

    const FILE: &str = "crates/core/src/bucket.rs";

    #[test]
    fn clocks_io_and_floats_are_found_in_any_spelling() {
        let bad = [
            "let t = SystemTime::now();",
            "let d = UNIX_EPOCH.elapsed();",
            "let t = Instant::now();",
            "let t = jiff::Timestamp::now();",
            "let t = Zoned::now();",
            "use jiff::Timestamp as T; fn f() { T::now() }",
            "let t = <T as Clock>::now();",
            "let zone = TimeZone::system();",
            "use std::fs;",
            "use std::{fmt, fs::File};",
            "use std::{collections::HashMap, net as n};",
            "::std::env::var(name)",
            "std::thread::spawn(f)",
            "std::process::exit(1)",
            "println!(\"{now}\")",
            "eprintln!()",
            "let a: f64 = b;",
            "let a = 0.5;",
            "let a = b as f32;",
            "span.as_secs_f64()",
        ];
        for text in bad {
            assert_eq!(lines(check, FILE, &format!("\n{text}\n")), [2], "{text}");
        }
    }

    #[test]
    fn pure_code_and_talk_about_impure_code_pass() {
        let good = [
            "use std::time::{Duration, SystemTime};",
            "fn step(now: Time) -> Time { now.max(self.now) }",
            "// never std::fs, never Instant::now(), never f64",
            "let a = \"std::fs println!() 0.5\";",
            "let a = pair.0.1 + 1..2;",
            "use std::fmt::{self, Display};",
        ];
        for text in good {
            assert_eq!(lines(check, FILE, text), [0; 0], "{text}");
        }
    }

    #[test]
    fn other_crates_and_the_tests_of_the_core_may_do_io() {
        let text = "use std::fs; let a = 0.5;";
        let files = [("crates/tollgate/src/lib.rs", text), ("crates/core/tests/a.rs", text)];
        assert_eq!(found(check, &files), [""; 0]);
    }
}
