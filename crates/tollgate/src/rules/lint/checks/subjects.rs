//! Lints about the subjects that rules count by.

use std::collections::HashSet;

use tollgate_core::rules::{Missing, Mode, Rule};

use super::attributes::subject_span;
use crate::rules::lint::Findings;
use crate::rules::lint::context::{Context, WrittenRule, names};
use tollgate_document::SourceSpan;

/// The attribute with a credential that clients send.
const KEY: &str = "api_key";
/// The attribute that every network request has.
const ADDRESS: &str = "ip";

pub(in crate::rules::lint) fn absent_subject(context: &Context<'_>, found: &mut Findings<'_>) {
    for written in context.live() {
        // An explicit `missing` is intended.
        if written.rule.missing != Missing::Skip || written.text.get("missing").is_some() {
            continue;
        }
        let required = required_attributes(written);
        let is_present = |name: &String| name == ADDRESS || required.contains(name.as_str());
        let Some(chain) = written.rule.per.parts.iter().find(|chain| !chain.iter().any(is_present)) else {
            continue;
        };
        let what = match chain.as_slice() {
            [only] => format!("`{only}`"),
            several => format!("any of {}", names(several.iter().map(String::as_str))),
        };
        let message = format!("rule `{}` does not count requests without {what}", written.id());
        let fix = "`missing: refuse` refuses them, `| ip` counts them by address, and `missing: skip` confirms \
                   that they are allowed";
        let first = chain.first().map_or("", String::as_str);
        found.push(found.warning(subject_span(context.source, written, first), message, fix));
    }
}

/// The attributes that every request under the rule has, because a condition requires a value. A condition that accepts
/// an empty value does not count: an empty value is not a subject.
fn required_attributes<'a>(written: &WrittenRule<'a>) -> HashSet<&'a str> {
    let required = written.conditions.iter().filter(|condition| !condition.test.holds(""));
    required.map(|condition| condition.attribute).collect()
}

pub(in crate::rules::lint) fn counted_by_address(context: &Context<'_>, found: &mut Findings<'_>) {
    let by_address = |rule: &Rule| rule.per.parts.iter().flatten().any(|name| name == ADDRESS);
    let rules: Vec<_> = context.live().filter(|written| by_address(written.rule)).collect();
    let mut spans: Vec<SourceSpan> = Vec::new();
    for written in &rules {
        let span = subject_span(context.source, written, ADDRESS);
        if !spans.contains(&span) && spans.len() < 8 {
            spans.push(span);
        }
    }
    let Some((&first, others)) = spans.split_first() else { return };
    let counts = if rules.len() == 1 { "rule" } else { "rules" };
    let verb = if rules.len() == 1 { "counts" } else { "count" };
    let message = format!(
        "{counts} {} {verb} by address: a client that changes its address gets a new count",
        names(rules.iter().map(|written| written.id())),
    );
    let fix = "trust only known proxies for `ip`, count IPv6 by prefix, and cap the rest with \
               `ip_subjects_max`";
    let problem = found.note(first, message, fix);
    found.push(others.iter().fold(problem, |problem, &span| problem.also(span, "and here")));
}

/// A client that sends another key with every request is counted neither by its key nor by its address.
pub(in crate::rules::lint) fn unverified_key(context: &Context<'_>, found: &mut Findings<'_>) {
    let falls_back = |chain: &Vec<String>| {
        chain.iter().any(|name| name == KEY) && chain.last().is_some_and(|name| name == ADDRESS)
    };
    let by_address = |rule: &Rule| matches!(rule.per.parts.as_slice(), [chain] if *chain == [ADDRESS]);
    for written in context.live().filter(|written| written.rule.per.parts.iter().any(falls_back)) {
        let conditions: Vec<_> = written.conditions.iter().collect();
        let is_counted = context.live().any(|other| {
            by_address(other.rule)
                && other.rule.mode == Mode::Enforce
                && context.budget.implies_all(&conditions, &other.conditions)
        });
        if !is_counted {
            let message = format!(
                "rule `{}` counts every invented `{KEY}` separately: a client that changes it is not limited",
                written.id()
            );
            let fix = "add a rule `per: ip` for the same requests, or verify the key first and send it only if it is \
                       valid";
            found.push(found.note(subject_span(context.source, written, KEY), message, fix));
        }
    }
}
