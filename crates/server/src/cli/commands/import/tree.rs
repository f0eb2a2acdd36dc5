//! The tree of descriptors that envoyproxy/ratelimit is configured with, as a list of ways through it.

use tollgate_document::{Node, Problem, Problems, SourceSpan};

use super::reading::{flag, list, number, required, text, warn_unknown};
use super::written::Amount;

/// From the root to a node that says how much.
#[derive(Clone, Debug)]
pub(super) struct Way {
    pub(super) steps: Vec<Step>,
    /// None if it is without limit.
    pub(super) amount: Option<Amount>,
    pub(super) name: Option<String>,
    pub(super) shadow: bool,
    pub(super) comments: Vec<String>,
    pub(super) span: SourceSpan,
}

/// An entry and what it must be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Step {
    pub(super) key: String,
    pub(super) value: Value,
}

/// In the order of who comes first: a request takes the last of these that fits.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Value {
    /// Each value is counted by itself.
    Any,
    /// Each value that starts so is counted by itself, or all of them together.
    Prefix {
        prefix: String,
        together: bool,
    },
    Exact(String),
}

const DEPTH_MAX: usize = 16;
const NODE_KEYS: &[&str] = &[
    "key",
    "value",
    "rate_limit",
    "descriptors",
    "shadow_mode",
    "detailed_metric",
    "value_to_metric",
    "share_threshold",
];
const LIMIT_KEYS: &[&str] = &["unit", "requests_per_unit", "unlimited", "name", "replaces"];

/// Every way below these nodes.
pub(super) fn ways(nodes: &[Node], above: &[Step], problems: &mut Problems, into: &mut Vec<Way>) {
    for node in nodes {
        let Some(key) = required(node, "key", problems) else { continue };
        warn_unknown(node, NODE_KEYS, problems);
        let mut steps = above.to_vec();
        steps.push(Step { key: key.to_owned(), value: value(node, problems) });
        if steps.len() > DEPTH_MAX {
            let message = format!("descriptors are nested more than {DEPTH_MAX} deep");
            problems.push(Problem::error("too-deep", node.span, message));
            continue;
        }
        if let Some(limit) = node.get("rate_limit") {
            into.extend(way(node, limit, &steps, problems));
        }
        ways(list(node, "descriptors", problems), &steps, problems, into);
    }
}

fn value(node: &Node, problems: &mut Problems) -> Value {
    let together = flag(node, "share_threshold", problems);
    match text(node, "value", problems).filter(|value| !value.is_empty()) {
        None => Value::Any,
        Some(value) => match value.strip_suffix('*') {
            Some(prefix) => Value::Prefix { prefix: prefix.to_owned(), together },
            None => Value::Exact(value.to_owned()),
        },
    }
}

fn way(node: &Node, limit: &Node, steps: &[Step], problems: &mut Problems) -> Option<Way> {
    warn_unknown(limit, LIMIT_KEYS, problems);
    let amount = if flag(limit, "unlimited", problems) { None } else { Some(amount(limit, problems)?) };
    let name = text(limit, "name", problems).map(str::to_owned);
    let mut comments = Vec::new();
    if let Some(replaces) = limit.entry("replaces") {
        let others = list(limit, "replaces", problems).iter();
        let named: Vec<&str> = others.filter_map(|other| required(other, "name", problems)).collect();
        let message = format!("`replaces` ({}), the replaced ones count too", named.join(", "));
        problems.push(
            Problem::warning("not-carried-over", replaces.key.span, message.clone()).help(
                "let Envoy send one descriptor or the other, or raise the numbers of the replaced rule",
            ),
        );
        comments.push(format!("NOT CARRIED OVER: {message}."));
    }
    // Both are read, or what is wrong with the second would not be told.
    if flag(node, "detailed_metric", problems) | flag(node, "value_to_metric", problems) {
        comments.push("Metrics are kept for each rule; they are not told apart by value.".to_owned());
    }
    let shadow = flag(node, "shadow_mode", problems);
    Some(Way { steps: steps.to_vec(), amount, name, shadow, comments, span: node.span })
}

fn amount(limit: &Node, problems: &mut Problems) -> Option<Amount> {
    const DAY_S: u64 = 86_400;
    let unit = required(limit, "unit", problems)?.to_ascii_lowercase();
    let seconds = match unit.as_str() {
        "second" => 1,
        "minute" => 60,
        "hour" => 3_600,
        "day" => DAY_S,
        "week" => 7 * DAY_S,
        // As long as they are there.
        "month" => 30 * DAY_S,
        "year" => 365 * DAY_S,
        _ => {
            let span = limit.get("unit").map_or(limit.span, |unit| unit.span);
            let message = "the unit must be second, minute, hour, day, week, month or year";
            problems.push(Problem::error("bad-unit", span, message));
            return None;
        }
    };
    let units = number(limit, "requests_per_unit", problems)?;
    Some(Amount { units, seconds })
}

impl Value {
    /// Whether one value can fit both.
    fn meets(&self, other: &Value) -> bool {
        match (self, other) {
            (Value::Any, _) | (_, Value::Any) => true,
            (Value::Exact(one), Value::Exact(two)) => one == two,
            (Value::Exact(value), Value::Prefix { prefix, .. })
            | (Value::Prefix { prefix, .. }, Value::Exact(value)) => value.starts_with(prefix.as_str()),
            (Value::Prefix { prefix: one, .. }, Value::Prefix { prefix: two, .. }) => {
                one.starts_with(two.as_str()) || two.starts_with(one.as_str())
            }
        }
    }
}

impl Way {
    /// The keys, which tell descriptors of one form from those of another.
    pub(super) fn keys(&self) -> Vec<&str> {
        self.steps.iter().map(|step| step.key.as_str()).collect()
    }

    /// Whether it takes every descriptor that the other one takes, and names no other values.
    pub(super) fn covers(&self, other: &Way) -> bool {
        let covers = |(own, other): (&Step, &Step)| own.value == Value::Any || own.value == other.value;
        self.steps.iter().zip(&other.steps).all(covers)
    }

    /// Whether one descriptor can go both ways.
    pub(super) fn meets(&self, other: &Way) -> bool {
        self.steps.iter().zip(&other.steps).all(|(one, two)| one.value.meets(&two.value))
    }

    /// Which of two that meet comes first there: step by step, the more exact value.
    pub(super) fn rank(&self) -> Vec<&Value> {
        self.steps.iter().map(|step| &step.value).collect()
    }

    /// How many values it names.
    pub(super) fn named(&self) -> usize {
        self.steps.iter().filter(|step| step.value != Value::Any).count()
    }
}
