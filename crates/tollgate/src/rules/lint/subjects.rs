//! Lints of who is counted.

use std::collections::HashSet;

use tollgate_core::rules::{Missing, Rule};

use super::Findings;
use super::attributes::subject_span;
use super::context::{Context, WrittenRule, names};
use tollgate_document::SourceSpan;

/// The attribute that every request over a network has.
const ADDRESS: &str = "ip";

pub(super) fn absent_subject(context: &Context<'_>, found: &mut Findings<'_>) {
    for written in context.live() {
        // Whoever wrote `missing` has thought of it.
        if written.rule.missing != Missing::Skip || written.text.get("missing").is_some() {
            continue;
        }
        let demanded = demanded(written);
        let is_there = |name: &String| name == ADDRESS || demanded.contains(name.as_str());
        let Some(chain) = written.rule.per.parts.iter().find(|chain| !chain.iter().any(is_there)) else {
            continue;
        };
        let what = match chain.as_slice() {
            [only] => format!("`{only}`"),
            several => format!("any of {}", names(several.iter().map(String::as_str))),
        };
        let message = format!("a request without {what} passes rule `{}` uncounted", written.id());
        let fix = "`missing: refuse` closes the hole, `| ip` counts such requests by address, and `missing: \
                   skip` says that it is meant";
        let first = chain.first().map_or("", String::as_str);
        found.push(found.warning(subject_span(context.source, written, first), message, fix));
    }
}

/// The attributes without which a request does not meet the rule. An empty value is no subject, so a condition that
/// takes one demands nothing.
fn demanded<'a>(written: &WrittenRule<'a>) -> HashSet<&'a str> {
    let demands = written.claims.iter().filter(|claim| !claim.test.holds(""));
    demands.map(|claim| claim.attribute).collect()
}

pub(super) fn counted_by_address(context: &Context<'_>, found: &mut Findings<'_>) {
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
        "{counts} {} {verb} by address: whoever can choose an address starts afresh with each one",
        names(rules.iter().map(|written| written.id())),
    );
    let fix = "let the edge believe only trusted proxies about `ip`, count IPv6 by prefix, and cap the \
               rest with `ip_subjects_max`";
    let problem = found.note(first, message, fix);
    found.push(others.iter().fold(problem, |problem, &span| problem.also(span, "and here")));
}
