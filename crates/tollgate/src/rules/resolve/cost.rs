//! Reads what a request costs, and checks it against the limit.

use tollgate_core::Algorithm;
use tollgate_core::rules::{Cost, RuleLimit};
use tollgate_document::{Kind, Node, Problem, Problems};

use super::super::expression;

/// Reads an expression and the cost of a request for which it fails. Without that cost, a client that makes the
/// expression fail would pay too little.
pub(super) fn expression_cost(entry: &Node, default: Option<&Node>, problems: &mut Problems) -> Option<Cost> {
    let text = entry.text()?;
    match (expression::compile(text), default) {
        (Ok(value), Some(default)) => {
            Some(Cost::Expression { text: text.to_owned(), value, default: default.u64()? })
        }
        (Ok(_), None) => {
            let message = "an expression without a `default`";
            problems.push(Problem::error("no-default-cost", entry.span, message).help(
                "a request for which it fails or overflows costs the default; add what an expensive request \
                 costs, like `default: 1000`",
            ));
            None
        }
        (Err(message), _) => {
            let message = format!("`expression`: {message}");
            problems.push(Problem::error("bad-expression", entry.span, message));
            None
        }
    }
}

/// The cost of a request under a rule without `cost`. A request takes one lease, whatever it costs under other rules.
pub(super) fn default_cost(limit: &RuleLimit) -> Cost {
    match limit.algorithm() {
        Some(Algorithm::Concurrency) => Cost::One,
        _ => Cost::FromRequest,
    }
}

/// The single attribute of a `by` and its table.
pub(super) fn only_entry<'n>(
    by: &'n Node,
    several: &str,
    problems: &mut Problems,
) -> Option<(String, &'n Node)> {
    match by.entries() {
        [entry] => Some((entry.key.text()?.to_owned(), &entry.value)),
        [] => {
            if by.kind() == Kind::Map {
                problems.push(
                    Problem::error("no-attribute", by.span, "missing attribute in `by`")
                        .help("for example `by: { method: { POST: … } }`"),
                );
            }
            None
        }
        [first, second, ..] => {
            problems.push(
                Problem::error("several-attributes", second.key.span, "more than one attribute in `by`")
                    .also(first.key.span, "the first attribute")
                    .help(several),
            );
            None
        }
    }
}

/// Reports a cost that the limit could never admit.
pub(super) fn check_cost_fits(
    cost: &Cost,
    limit: &RuleLimit,
    limit_node: &Node,
    cost_node: Option<&Node>,
    problems: &mut Problems,
) {
    let largest = match cost {
        Cost::Expression { default, .. } => Some(*default),
        _ => cost.max_cost(),
    };
    let (Some(largest), capacity) = (largest, limit.capacity()) else { return };
    if *limit != RuleLimit::Deny && largest > capacity {
        let message = format!("cost {largest} exceeds the capacity {capacity} of the limit");
        let problem = |span| {
            Problem::error("cost-above-capacity", span, &*message)
                .help("raise the capacity or lower the cost")
        };
        problems.push(match cost_node {
            Some(cost) => problem(cost.span).also(limit_node.span, format!("capacity {capacity}")),
            None => problem(limit_node.span),
        });
    }
}
