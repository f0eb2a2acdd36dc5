//! Rules with `postpaid: true`: costs that are known only after the work.

use tollgate_core::Algorithm;
use tollgate_core::rules::{Cost, Rule, RuleLimit};

use tollgate_document::{Node, Problem, Problems};

/// Returns the rule with numbers that leave room for records, or reports why it cannot be postpaid.
pub(super) fn check(mut rule: Rule, node: &Node, problems: &mut Problems) -> Option<Rule> {
    let span_of = |key: &str| node.get(key).map_or(node.span, |node| node.span);
    let mut is_valid = true;
    if matches!(rule.cost, Cost::Constant(_) | Cost::Table { .. }) {
        let message = "a postpaid rule with a cost that is known before the work";
        problems.push(Problem::error("postpaid-cost", span_of("cost"), message).help(
            "remove `cost`, so that the request states it, or write an `expression`; or remove `postpaid`",
        ));
        is_valid = false;
    }
    if let Some(algorithm @ (Algorithm::Concurrency | Algorithm::Penalty)) = rule.limit.algorithm() {
        let message = format!("a {} limit cannot be postpaid", algorithm.name());
        problems.push(Problem::error("postpaid-limit", span_of("postpaid"), message).help(
            "it counts requests while they run, or failures, not what was consumed; remove `postpaid`",
        ));
        is_valid = false;
    }
    if !is_valid {
        return None;
    }
    // The default under a deny that overrides change to a concurrency limit.
    rule.limit = with_room(rule.limit, node.get("limit").unwrap_or(node), problems)?;
    Some(rule)
}

/// Returns the limit in ticks that leave room for records, or reports that no tick does.
pub(super) fn with_room(limit: RuleLimit, node: &Node, problems: &mut Problems) -> Option<RuleLimit> {
    match limit.with_room_for_records() {
        Ok(limit) => Some(limit),
        Err(error) => {
            let message = format!("a postpaid limit must leave room for overdraft: {error}");
            problems.push(Problem::error("impossible-limit", node.span, message));
            None
        }
    }
}
