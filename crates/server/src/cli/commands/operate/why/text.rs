//! Explanations for people.

use serde_json::Value;

use crate::cli::client::table::{Align, Table, cell, duration_cell, instant_cell};
use crate::text::escape_control;

/// A refusal of the past.
pub(super) fn refusal(refusal: &Value) -> String {
    let rule = match refusal["rule"].as_str() {
        Some(rule) => format!("by rule {rule}"),
        None => format!("({})", cell(refusal, "source")),
    };
    let mut text = format!("refused {rule} at {}\n\n", instant_cell(refusal, "at_ms"));
    let rules = refusal["refused_by"].as_array().map(Vec::as_slice).unwrap_or_default();
    if !rules.is_empty() {
        let mut table = Table::new(&[
            ("rule", Align::Left),
            ("algorithm", Align::Left),
            ("limit", Align::Right),
            ("remaining", Align::Right),
            ("cost", Align::Right),
            ("retry after", Align::Right),
            ("whole again at", Align::Left),
            ("override", Align::Left),
        ]);
        for rule in rules {
            let names = ["rule", "algorithm", "limit", "remaining", "cost"].map(|name| cell(rule, name));
            let times = [duration_cell(rule, "retry_after_ms"), instant_cell(rule, "reset_at_ms")];
            let changed = if rule["override"] == true { "yes" } else { "no" };
            table.row(names.into_iter().chain(times).chain([changed.to_owned()]));
        }
        text += &format!("{}\n", table.text());
    }
    if let Some(more) = refusal["more"].as_u64().filter(|&more| more > 0) {
        text += &format!("{more} more rules refused\n");
    }
    let in_force = match refusal["rules_are_in_force"].as_bool() {
        Some(true) => ", which are in force",
        Some(false) => ", which were replaced since",
        None => "",
    };
    for (name, value) in [
        ("subject", cell(refusal, "subject")),
        ("server", cell(refusal, "server")),
        ("decided by", format!("{} ({})", cell(refusal, "source"), cell(refusal, "exactness"))),
        ("rules", format!("{}{in_force}", cell(refusal, "rules_fingerprint"))),
    ] {
        text += &format!("{name:<11} {}\n", escape_control(&value));
    }
    text
}

/// The live numbers of a subject, and its last refusals.
pub(super) fn explanation(explained: &Value) -> String {
    let decision = &explained["decision"];
    let mut text = headline(explained);
    let rules = explained["rules"].as_array().map(Vec::as_slice).unwrap_or_default();
    let applying: Vec<&Value> = rules.iter().filter(|rule| rule["applies"] == true).collect();
    if !applying.is_empty() {
        text += &format!("\n{}", numbers(&applying).text());
    }
    for rule in &applying {
        let change = &rule["override"];
        if change.is_object() {
            let until = change["until"].as_str().map(|until| format!(", until {until}")).unwrap_or_default();
            let reason = change["reason"].as_str().filter(|reason| !reason.is_empty());
            let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
            let line = format!(
                "override of {} for {} ({}:{}{until}){reason}",
                cell(rule, "rule"),
                cell(change, "when"),
                cell(change, "file"),
                cell(change, "line"),
            );
            text += &format!("{}\n", escape_control(&line));
        }
    }
    for rule in rules.iter().filter(|rule| rule["applies"] != true) {
        let unmet: Vec<&str> =
            rule["unmet"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let why =
            if unmet.is_empty() { "is off".to_owned() } else { format!("because of {}", unmet.join(", ")) };
        text += &format!("{}\n", escape_control(&format!("{} does not apply {why}", cell(rule, "rule"))));
    }
    let refusals = explained["recent_refusals"].as_array().map(Vec::as_slice).unwrap_or_default();
    if refusals.is_empty() {
        text += "\nno refusals of this subject are remembered\n";
    } else {
        text += &format!("\nlast refusals\n{}", last_refusals(refusals).text());
    }
    if decision.is_null() {
        text += "\nthe numbers are unknown: the store did not answer\n";
    }
    text
}

fn headline(explained: &Value) -> String {
    let decision = &explained["decision"];
    if decision.is_null() {
        return format!("undecided: {}\n", escape_control(&cell(explained, "undecided")));
    }
    let by = match decision["rule"].as_str() {
        Some(rule) => format!("by rule {rule}"),
        None => format!("({})", cell(decision, "source")),
    };
    let wait = match decision["retry_after_ms"].as_u64() {
        Some(0) | None => String::new(),
        Some(_) => format!("; a retry is admitted in {}", duration_cell(decision, "retry_after_ms")),
    };
    let reason =
        explained["exception"]["reason"].as_str().map(|reason| format!(": {reason}")).unwrap_or_default();
    let answer = if decision["allowed"] == true { "would be allowed" } else { "would be refused" };
    escape_control(&format!("{answer} {by}{wait}{reason}")) + "\n"
}

fn numbers(rules: &[&Value]) -> Table {
    let mut table = Table::new(&[
        ("rule", Align::Left),
        ("subject", Align::Left),
        ("limit", Align::Right),
        ("remaining", Align::Right),
        ("cost", Align::Right),
        ("retry at", Align::Left),
        ("whole again at", Align::Left),
        ("from", Align::Left),
    ]);
    for rule in rules {
        let shadow = if rule["blocking"] == true { "" } else { " (shadow)" };
        let at = &rule["limit_at"];
        let from = format!("{}:{}", cell(at, "file"), cell(at, "line"));
        let accounts = rule["accounts"].as_array().map(Vec::as_slice).unwrap_or_default();
        let none = [Value::Null];
        for account in if accounts.is_empty() { &none[..] } else { accounts } {
            let before = &account["before"];
            let retry = match (account["allowed"].as_bool(), account["retry_at_ms"].as_u64()) {
                (Some(false), Some(_)) => instant_cell(account, "retry_at_ms"),
                (Some(false), None) => "never".to_owned(),
                (Some(true), _) => "now".to_owned(),
                (None, _) => "-".to_owned(),
            };
            table.row([
                format!("{}{shadow}", cell(rule, "rule")),
                cell(rule, "subject"),
                cell(before, "limit"),
                cell(before, "remaining"),
                cell(rule, "cost"),
                retry,
                instant_cell(before, "reset_at_ms"),
                from.clone(),
            ]);
        }
    }
    table
}

fn last_refusals(refusals: &[Value]) -> Table {
    let mut table = Table::new(&[
        ("last at", Align::Left),
        ("rule", Align::Left),
        ("times", Align::Right),
        ("limit", Align::Right),
        ("cost", Align::Right),
        ("retry at", Align::Left),
        ("source", Align::Left),
        ("server", Align::Left),
    ]);
    for refusal in refusals {
        table.row([
            instant_cell(refusal, "last_ms"),
            cell(refusal, "rule"),
            cell(refusal, "count"),
            cell(refusal, "limit"),
            cell(refusal, "cost"),
            instant_cell(refusal, "retry_at_ms"),
            cell(refusal, "source"),
            cell(refusal, "server"),
        ]);
    }
    table
}
