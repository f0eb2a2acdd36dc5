//! Rules with `slices`: parts of a limit that a server books in the store and spends without asking.

use tollgate_core::Algorithm;
use tollgate_core::plan::slice::SliceHold;
use tollgate_core::rules::{Cost, Rule, RuleLimit};

use super::notation;
use crate::shorthand;
use tollgate_document::{Node, Problem, Problems};

/// Checks the length of a hold.
pub(super) fn check_hold(text: &str) -> Result<(), String> {
    hold(text).map(drop)
}

fn hold(text: &str) -> Result<SliceHold, String> {
    notation::check_duration(text)?;
    let hold = shorthand::span(text).map_err(|error| error.to_string())?;
    SliceHold::new(hold)
        .ok_or_else(|| format!("{hold} is out of range: {} to {}", SliceHold::MIN, SliceHold::MAX))
}

/// Reads `slices` of a rule. `None` if it has none; the shape has reported an invalid one.
pub(super) fn read(rule: &Node) -> Option<SliceHold> {
    hold(rule.get("slices")?.get("hold")?.text()?).ok()
}

/// Returns the rule with the margin that its slices need, or reports why it cannot have slices.
pub(super) fn check(mut rule: Rule, node: &Node, problems: &mut Problems) -> Option<Rule> {
    let Some(hold) = rule.slices else { return Some(rule) };
    let span = node.get("slices").map_or(node.span, |node| node.span);
    let refusal = match rule.limit.algorithm() {
        _ if rule.postpaid => {
            Some(("a postpaid rule", "its costs are booked after the work, not granted before it"))
        }
        Some(Algorithm::SlidingLog) => Some(("a sliding log", "it counts every unit at its own instant")),
        Some(Algorithm::Concurrency) => Some(("a concurrency limit", "its leases are held in the store")),
        Some(Algorithm::LeakyShaper) => Some(("a queue", "it has one order for all servers")),
        Some(Algorithm::Meter) => Some(("a meter", "it has no window in which a part is spent")),
        Some(Algorithm::Penalty) => Some(("a penalty", "failures are counted in the store")),
        _ => None,
    };
    if let Some((what, why)) = refusal {
        let message = format!("{what} cannot have slices: {why}");
        problems.push(Problem::error("slices-limit", span, message).help(
            "remove `slices`, or use a fixed window, a sliding window, a token bucket, a leaky bucket with a capacity, or \
             a quota",
        ));
        return None;
    }
    let limit_node = node.get("limit").unwrap_or(node);
    rule.limit = with_margin(rule.limit, hold, &rule.cost, limit_node, problems)?;
    Some(rule)
}

/// Returns the limit with its margin, or reports that a request would not fit in what is left of the capacity.
pub(super) fn with_margin(
    limit: RuleLimit,
    hold: SliceHold,
    cost: &Cost,
    node: &Node,
    problems: &mut Problems,
) -> Option<RuleLimit> {
    if limit == RuleLimit::Deny {
        return Some(limit);
    }
    let largest = match cost {
        Cost::Expression { default, .. } => *default,
        cost => cost.max_cost().unwrap_or(1),
    };
    let capacity = limit.capacity();
    let reduced = limit.with_slice_margin(hold).filter(|reduced| reduced.capacity() >= largest.max(1));
    if reduced.is_none() {
        let message = format!(
            "slices of {} leave too little of the capacity {capacity}: a cost of {} does not fit",
            hold.span(),
            largest.max(1),
        );
        problems.push(Problem::error("slices-margin", node.span, message).help(
            "a bucket with slices runs at its capacity minus what it refills during a hold; raise the capacity or \
             shorten `hold`",
        ));
    }
    reduced
}
