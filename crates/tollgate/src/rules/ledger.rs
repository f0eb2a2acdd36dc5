//! Rules with `ledger`: what they admit is recorded in a database.

use tollgate_core::rules::Rule;
use tollgate_core::{Algorithm, Recording};
use tollgate_document::{Node, Problem, Problems};

/// Reads `ledger` of a rule. `None` if it has none.
pub(super) fn read(rule: &Node) -> Option<Recording> {
    let ledger = rule.get("ledger")?;
    let text = |key| ledger.get(key).and_then(Node::text);
    Some(Recording {
        stamped: false,
        totals: text("detail") == Some("totals"),
        wait: ledger.get("wait").and_then(Node::bool).unwrap_or(false),
        refuse_when_down: text("when_down") == Some("refuse"),
    })
}

/// Reads the attribute that names the accounts of a rule.
pub(super) fn name(rule: &Node) -> Option<String> {
    rule.get("ledger")?.get("name")?.text().map(str::to_owned)
}

/// Reports why a rule cannot be recorded.
pub(super) fn check(rule: &Rule, node: &Node, problems: &mut Problems) -> Option<()> {
    let Some(recording) = rule.ledger else { return Some(()) };
    let span = node.get("ledger").map_or(node.span, |node| node.span);
    let is_account = matches!(rule.limit.algorithm(), Some(Algorithm::Quota | Algorithm::Meter) | None);
    let problem = if !is_account {
        Problem::error("ledger-limit", span, "the ledger records quotas and meters only")
            .help("remove `ledger`, or count what is billed in a second rule with `quota`")
    } else if rule.slices.is_some() {
        Problem::error("ledger-slices", span, "a rule with a ledger cannot have slices")
            .help("remove `slices`: the ledger records what the store admits, and slices admit without it")
    } else if recording.wait && recording.totals {
        Problem::error("ledger-wait", span, "`wait: true` needs `detail: entries`")
            .help("an answer that waited in vain is undone by a second entry, which totals do not have")
    } else {
        return Some(());
    };
    problems.push(problem);
    None
}
