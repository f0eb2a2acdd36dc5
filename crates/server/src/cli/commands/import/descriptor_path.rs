//! The descriptor tree of envoyproxy/ratelimit, as a list of paths through it.

use tollgate_document::{Node, Problem, Problems, SourceSpan};

use super::fields::{flag, list, number, required, text, warn_unknown};
use super::rules_file::WindowLimit;

/// A path from the root of the tree to a node with a limit.
#[derive(Clone, Debug)]
pub(super) struct DescriptorPath {
    pub(super) entries: Vec<PathEntry>,
    /// `None` if it is unlimited.
    pub(super) limit: Option<WindowLimit>,
    pub(super) name: Option<String>,
    pub(super) shadow: bool,
    pub(super) comments: Vec<String>,
    pub(super) span: SourceSpan,
}

/// The key of a descriptor entry, and the values that it matches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct PathEntry {
    pub(super) key: String,
    pub(super) value: Value,
}

/// The values that an entry matches, in ascending priority: the last variant that matches wins.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Value {
    /// Any value; each one is counted separately.
    Any,
    /// Values with this prefix; each one is counted separately unless they share the limit.
    Prefix {
        prefix: String,
        shared: bool,
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

/// Collects every path below these nodes.
pub(super) fn collect_paths(
    nodes: &[Node],
    above: &[PathEntry],
    problems: &mut Problems,
    into: &mut Vec<DescriptorPath>,
) {
    for node in nodes {
        let Some(key) = required(node, "key", problems) else { continue };
        warn_unknown(node, NODE_KEYS, problems);
        let mut entries = above.to_vec();
        entries.push(PathEntry { key: key.to_owned(), value: value(node, problems) });
        if entries.len() > DEPTH_MAX {
            let message = format!("descriptors are nested more than {DEPTH_MAX} levels deep");
            problems.push(Problem::error("too-deep", node.span, message));
            continue;
        }
        if let Some(limit) = node.get("rate_limit") {
            into.extend(path(node, limit, &entries, problems));
        }
        collect_paths(list(node, "descriptors", problems), &entries, problems, into);
    }
}

fn value(node: &Node, problems: &mut Problems) -> Value {
    let shared = flag(node, "share_threshold", problems);
    match text(node, "value", problems).filter(|value| !value.is_empty()) {
        None => Value::Any,
        Some(value) => match value.strip_suffix('*') {
            Some(prefix) => Value::Prefix { prefix: prefix.to_owned(), shared },
            None => Value::Exact(value.to_owned()),
        },
    }
}

fn path(node: &Node, limit: &Node, entries: &[PathEntry], problems: &mut Problems) -> Option<DescriptorPath> {
    warn_unknown(limit, LIMIT_KEYS, problems);
    let window_limit =
        if flag(limit, "unlimited", problems) { None } else { Some(window_limit(limit, problems)?) };
    let name = text(limit, "name", problems).map(str::to_owned);
    let mut comments = Vec::new();
    if let Some(replaces) = limit.entry("replaces") {
        let others = list(limit, "replaces", problems).iter();
        let named: Vec<&str> = others.filter_map(|other| required(other, "name", problems)).collect();
        let message = format!("`replaces` ({}); the replaced limits count too", named.join(", "));
        problems.push(
            Problem::warning("not-carried-over", replaces.key.span, message.clone()).help(
                "let Envoy send one descriptor or the other, or raise the numbers of the replaced rule",
            ),
        );
        comments.push(format!("NOT CARRIED OVER: {message}."));
    }
    // Both are read, so that problems of both are reported.
    if flag(node, "detailed_metric", problems) | flag(node, "value_to_metric", problems) {
        comments.push("Metrics are per rule, not per value.".to_owned());
    }
    let shadow = flag(node, "shadow_mode", problems);
    Some(DescriptorPath {
        entries: entries.to_vec(),
        limit: window_limit,
        name,
        shadow,
        comments,
        span: node.span,
    })
}

fn window_limit(limit: &Node, problems: &mut Problems) -> Option<WindowLimit> {
    const DAY_S: u64 = 86_400;
    let unit = required(limit, "unit", problems)?.to_ascii_lowercase();
    let seconds = match unit.as_str() {
        "second" => 1,
        "minute" => 60,
        "hour" => 3_600,
        "day" => DAY_S,
        "week" => 7 * DAY_S,
        // The same lengths as in envoyproxy/ratelimit.
        "month" => 30 * DAY_S,
        "year" => 365 * DAY_S,
        _ => {
            let span = limit.get("unit").map_or(limit.span, |unit| unit.span);
            let message = "unknown unit: write second, minute, hour, day, week, month or year";
            problems.push(Problem::error("bad-unit", span, message));
            return None;
        }
    };
    let units = number(limit, "requests_per_unit", problems)?;
    Some(WindowLimit { units, seconds })
}

impl Value {
    /// Whether a value can match both.
    fn overlaps(&self, other: &Value) -> bool {
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

impl DescriptorPath {
    /// The keys of the entries.
    pub(super) fn keys(&self) -> Vec<&str> {
        self.entries.iter().map(|entry| entry.key.as_str()).collect()
    }

    /// Whether it matches every descriptor that the other one matches, and has no other values.
    pub(super) fn covers(&self, other: &DescriptorPath) -> bool {
        let covers =
            |(own, other): (&PathEntry, &PathEntry)| own.value == Value::Any || own.value == other.value;
        self.entries.iter().zip(&other.entries).all(covers)
    }

    /// Whether a descriptor can match both.
    pub(super) fn overlaps(&self, other: &DescriptorPath) -> bool {
        self.entries.iter().zip(&other.entries).all(|(one, two)| one.value.overlaps(&two.value))
    }

    /// The priority among overlapping paths: entry by entry, the more specific value wins.
    pub(super) fn rank(&self) -> Vec<&Value> {
        self.entries.iter().map(|entry| &entry.value).collect()
    }

    /// The number of entries with a value.
    pub(super) fn value_count(&self) -> usize {
        self.entries.iter().filter(|entry| entry.value != Value::Any).count()
    }
}
