//! Live changes for people, and as a block for the rules file.

use serde_json::Value;

use crate::cli::client::table::{Align, Table, cell};
use crate::text::escape_control;

/// What was done with a change, and how it compares with what applies without it.
pub(super) fn done(verb: &str, change: &Value) -> String {
    let effect = match change["effect"].as_str() {
        None => "",
        Some("raises") => ": it raises the limit",
        Some("lowers") => ": it lowers the limit",
        Some(_) => ": it raises some numbers and lowers others",
    };
    format!("{verb} {}{effect}\n", escape_control(&cell(change, "id")))
}

/// One change, a line for each member.
pub(super) fn details(change: &Value) -> String {
    let mut table = Table::new(&[("", Align::Left), ("", Align::Left)]);
    for (name, text) in members(change) {
        if text != "-" {
            table.row([name.to_owned(), text]);
        }
    }
    // The header is empty.
    table.text().trim_start_matches('\n').to_owned()
}

/// Several changes, a line for each.
pub(super) fn table(changes: &[Value]) -> Table {
    let names = ["id", "rule", "when", "change", "until", "author", "reason", "state"];
    let mut table = Table::new(&names.map(|name| (name, Align::Left)));
    for change in changes {
        table.row(members(change).map(|(_, text)| text));
    }
    table
}

/// What a change says, in a few words.
pub(in super::super) fn summary(spec: &Value) -> String {
    let parts = [cell(spec, "rule"), conditions(spec), what(spec)];
    parts.into_iter().filter(|part| part != "-").collect::<Vec<_>>().join(" ")
}

fn conditions(change: &Value) -> String {
    let has_some = change["when"].as_object().is_some_and(|when| !when.is_empty());
    if has_some || !change["subject"].is_null() { plain(&change["when"]) } else { "all".to_owned() }
}

fn what(change: &Value) -> String {
    match (&change["scale"], &change["limit"], &change["subject"]) {
        (Value::String(scale), ..) => format!("x {scale}"),
        (_, limit, _) if !limit.is_null() => plain(limit),
        (.., subject) if !subject.is_null() => format!("subject {}", cell(change, "subject")),
        _ => "-".to_owned(),
    }
}

fn members(change: &Value) -> [(&'static str, String); 8] {
    let state = match change["in_force"].as_bool() {
        Some(true) => "in force".to_owned(),
        _ => cell(change, "why_not"),
    };
    let until = if change["until"].is_null() { "permanent".to_owned() } else { cell(change, "until") };
    [
        ("id", cell(change, "id")),
        ("rule", cell(change, "rule")),
        ("when", conditions(change)),
        ("change", what(change)),
        ("until", until),
        ("author", cell(change, "author")),
        ("reason", cell(change, "reason")),
        ("state", state),
    ]
}

/// A value without the quotes and braces of JSON.
fn plain(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Object(members) => {
            let each = members.iter().map(|(name, value)| match value {
                Value::Object(_) => format!("{name}: {}", plain(value)),
                value => format!("{name}={}", plain(value)),
            });
            each.collect::<Vec<_>>().join(" ")
        }
        Value::Array(values) => values.iter().map(plain).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

/// A block for the rules file. JSON in one line is valid YAML. What a rules file cannot say is a comment.
pub(super) fn yaml(list: &str, changes: &[Value]) -> String {
    let mut text = format!("{list}:{}\n", if changes.is_empty() { " []" } else { "" });
    for change in changes {
        let id = escape_control(&cell(change, "id"));
        let when = change["when"].as_object();
        let has_hash = when.is_some_and(|when| when.values().any(|value| value.get("hashed").is_some()));
        if has_hash || !change["subject"].is_null() {
            text += &format!("  # {id} names a value by its keyed hash; write the value itself\n");
            continue;
        }
        let mut members = Vec::new();
        for name in ["rule", "when", "limit", "scale", "until", "reason"] {
            match &change[name] {
                Value::Null if name == "when" => members.push("when: {}".to_owned()),
                Value::Null => (),
                until if name == "until" && list != "overrides" => {
                    text += &format!(
                        "  # {id} ends at {}: remove the entry then\n",
                        escape_control(&plain(until))
                    );
                }
                value => members.push(format!("{name}: {value}")),
            }
        }
        text += &format!("  - {{ {} }}\n", members.join(", "));
    }
    // All changes were comments.
    if !changes.is_empty() && !text.contains("  - {") {
        text = text.replacen(":\n", ": []\n", 1);
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_block_has_what_a_rules_file_can_say_and_comments_for_the_rest() {
        let changes = [
            json!({ "id": "o-1", "rule": "search", "when": { "tenant": "a\"b" }, "scale": "2", "until": "2026-12-01T00:00:00Z", "reason": "x: y" }),
            json!({ "id": "o-2", "rule": "calls", "when": { "api_key": { "hashed": ["AAAA"] } }, "scale": "2", "reason": "vip" }),
            json!({ "id": "o-3", "rule": "search", "limit": { "fixed-window": "5/h" }, "until": null, "reason": "all" }),
        ];
        let expected = "overrides:\n  \
            - { rule: \"search\", when: {\"tenant\":\"a\\\"b\"}, scale: \"2\", until: \"2026-12-01T00:00:00Z\", reason: \"x: y\" }\n  \
            # o-2 names a value by its keyed hash; write the value itself\n  \
            - { rule: \"search\", when: {}, limit: {\"fixed-window\":\"5/h\"}, reason: \"all\" }\n";
        assert_eq!(yaml("overrides", &changes), expected);
        let deny = json!({ "id": "d-1", "when": { "ip": "192.0.2.0/24" }, "until": "2026-12-01T00:00:00Z", "reason": "flood" });
        let expected = "deny:\n  # d-1 ends at 2026-12-01T00:00:00Z: remove the entry then\n  \
            - { when: {\"ip\":\"192.0.2.0/24\"}, reason: \"flood\" }\n";
        assert_eq!(yaml("deny", &[deny]), expected);
        assert_eq!(yaml("bypass", &[]), "bypass: []\n");
        assert!(yaml("overrides", &changes[1..2]).starts_with("overrides: []\n"));
    }

    #[test]
    fn a_change_is_shown_without_the_quotes_of_json() {
        let change = json!({ "id": "o-1", "rule": "search", "when": { "tenant": ["a", "b"], "path": { "prefix": "/v1" } },
            "limit": { "token-bucket": "2/s", "burst": 5 }, "until": null, "author": "jane", "reason": "\u{1b}[2J",
            "in_force": false, "why_not": "it has ended" });
        let text = details(&change);
        for line in [
            "when    path: prefix=/v1 tenant=a,b",
            "change  burst=5 token-bucket=2/s",
            "until   permanent",
            "state   it has ended",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
        assert!(!text.contains('\u{1b}'), "{text}");
        assert_eq!(
            done("added", &json!({ "id": "o-1", "effect": "raises" })),
            "added o-1: it raises the limit\n"
        );
    }
}
