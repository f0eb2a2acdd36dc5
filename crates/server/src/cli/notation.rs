//! Limits and conditions on the command line, in the notation of the rules file.

use serde_json::Value;
use tollgate::core::rules::RuleLimit;
use tollgate::rules::load_limit;
use tollgate_document::{Problems, Source, parse};

use crate::cli::terminal;
use crate::explanation::document::to_json;
use crate::failure::Failure;

/// Reads a limit like `token-bucket: 2/s, burst: 5`. Prints the problems of an invalid one.
pub(crate) fn limit(text: &str) -> Result<RuleLimit, Failure> {
    let source = Source::new("limit", with_braces(text).as_bytes());
    let mut problems = Problems::new();
    load_limit(&source, &mut problems).ok_or_else(|| {
        crate::stderr::write(&terminal::problems(&problems, &source));
        let hint = "`tollgate guide` shows a limit for every purpose";
        Failure::new(format!("invalid limit `{}`", text.escape_debug()), hint)
    })
}

/// Reads a limit as JSON, for a call to a server.
pub(crate) fn limit_json(text: &str) -> Result<Value, Failure> {
    limit(text)?;
    json_of("--limit", &with_braces(text))
}

/// Reads a value in YAML as JSON. `name` is what messages call it.
pub(crate) fn json_of(name: &str, text: &str) -> Result<Value, Failure> {
    let source = Source::new(name, text.as_bytes());
    let mut problems = Problems::new();
    let node = parse(&source, &mut problems).filter(|_| !problems.has_errors());
    node.map(|node| to_json(&node)).ok_or_else(|| {
        crate::stderr::write(&terminal::problems(&problems, &source));
        Failure::new(format!("invalid {name}"), "write it as in a rules file, like { prefix: /v1/ }")
    })
}

/// Adds the braces that a map needs in a rules file. The limit `deny` is a word without braces, and a bare rate is a mistake
/// that the loader explains.
fn with_braces(text: &str) -> String {
    let text = text.trim();
    let is_scalar = text == "deny" || text.starts_with(|c: char| c.is_ascii_digit());
    if text.starts_with('{') || is_scalar { text.to_owned() } else { format!("{{ {text} }}") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn limits_are_written_as_in_a_rules_file() {
        for (text, expected) in [
            ("token-bucket: 20/s, burst: 40", json!({ "token-bucket": "20/s", "burst": 40 })),
            ("{ fixed-window: 10_000/h }", json!({ "fixed-window": "10_000/h" })),
            ("token-bucket: 20/s, burst: 10_000", json!({ "token-bucket": "20/s", "burst": 10_000 })),
            ("deny", json!("deny")),
        ] {
            assert_eq!(limit_json(text).expect(text), expected);
        }
        for text in ["20/s", "{ a: [", "token-bucket: fast", ""] {
            assert!(limit_json(text).is_err(), "{text}");
        }
    }
}
