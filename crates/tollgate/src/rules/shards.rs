//! Rules with `shards`: a limit that is divided over several keys.

use tollgate_core::Algorithm;
use tollgate_core::limit::part::Shards;
use tollgate_core::rules::{Cost, Rule, RuleLimit};
use tollgate_core::{Limit, Time};

use tollgate_document::{Node, Problem, Problems, SourceSpan};

/// Reads `shards` of a rule. `None` if it has none; the shape has reported an invalid one.
pub(super) fn read(rule: &Node) -> Option<Shards> {
    Shards::new(rule.get("shards")?.u64()?)
}

/// Reports why a rule cannot be sharded.
pub(super) fn check(rule: &Rule, node: &Node, problems: &mut Problems) -> Option<()> {
    let Some(shards) = rule.shards else { return Some(()) };
    let span = node.get("shards").map_or(node.span, |node| node.span);
    if let Some((what, why)) = conflict(rule) {
        let message = format!("{what} cannot have shards: {why}");
        problems.push(Problem::error("shards-limit", span, message).help(
            "remove `shards`, or use a fixed window, a sliding window, a token bucket, a leaky bucket with a capacity, or \
             a calendar quota",
        ));
        return None;
    }
    let limit_node = node.get("limit").unwrap_or(node);
    check_parts(&rule.limit, shards, &rule.cost, limit_node.span, problems)
}

/// What a sharded rule cannot be, and why.
fn conflict(rule: &Rule) -> Option<(&'static str, &'static str)> {
    if rule.postpaid {
        return Some(("a postpaid rule", "what one shard books above its part does not count in the others"));
    }
    if rule.slices.is_some() {
        return Some((
            "a rule with slices",
            "a part that a server books relieves the key more than shards do",
        ));
    }
    if rule.ledger.is_some() {
        return Some(("a rule with a ledger", "the ledger has one account for each subject"));
    }
    if rule.ip_subjects_max.is_some() {
        return Some((
            "a rule with `ip_subjects_max`",
            "it counts many subjects, and each would have several keys",
        ));
    }
    match rule.limit.algorithm()? {
        Algorithm::SlidingLog => Some(("a sliding log", "it is used where every count must be exact")),
        Algorithm::Concurrency => Some(("a concurrency limit", "its leases are counted together")),
        Algorithm::LeakyShaper => Some(("a queue", "it has one order for all requests")),
        Algorithm::Meter => Some(("a meter", "its value is one number")),
        Algorithm::Penalty => Some(("a penalty", "failures must be counted together")),
        Algorithm::Quota if matches!(rule.limit, RuleLimit::Fixed(_)) => {
            Some(("a rolling quota", "each shard would start its period at its own first charge"))
        }
        _ => None,
    }
}

/// Reports a limit that cannot be divided, or a cost that does not fit into the smallest part.
pub(super) fn check_parts(
    limit: &RuleLimit,
    shards: Shards,
    cost: &Cost,
    span: SourceSpan,
    problems: &mut Problems,
) -> Option<()> {
    let Some(limit) = limit.at(Time::ZERO) else { return Some(()) };
    let count = shards.count();
    if !shards.all().all(|shard| limit.part(shard).is_some()) {
        let message = format!("a limit of {} cannot be divided into {count} shards", limit.reported_limit());
        problems.push(Problem::error("shards-parts", span, message).help(
            "every shard needs at least one unit, at a rate that a tick can express; use fewer shards",
        ));
        return None;
    }
    let smallest = smallest_part(&limit, shards);
    let largest = match cost {
        Cost::Expression { default, .. } => *default,
        cost => cost.max_cost().unwrap_or(1),
    };
    if largest > smallest {
        let message = format!(
            "a cost of {largest} does not fit into the smallest of {count} shards, which has {smallest} units"
        );
        problems.push(
            Problem::error("shards-parts", span, message)
                .help("a request is counted by one shard; use fewer shards, or raise the limit"),
        );
        return None;
    }
    Some(())
}

/// The largest cost that every shard admits when nothing is used.
pub(super) fn smallest_part(limit: &Limit, shards: Shards) -> u64 {
    limit.part(shards.smallest()).map_or(0, |part| part.capacity())
}
