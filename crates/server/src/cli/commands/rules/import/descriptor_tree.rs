//! Reads the descriptor trees of envoyproxy/ratelimit from its files.

use std::collections::HashMap;

use tollgate_document::{Kind, Node, Problem, Problems, SourceSpan};

use super::fields::{flag, list, number_up_to, reject_unknown, required, text};
use super::input::{Input, Location};
use super::rules_file::{WindowLimit, WindowStart};

/// All descriptors of a domain.
#[derive(Debug)]
pub(super) struct Domain {
    pub(super) name: String,
    pub(super) nodes: Vec<Descriptor>,
}

/// A node of the tree.
#[derive(Debug)]
pub(super) struct Descriptor {
    pub(super) key: String,
    /// `None` matches any value. `*` stands for any characters.
    pub(super) value: Option<String>,
    /// Whether all values that match a wildcard are counted together.
    pub(super) shared: bool,
    pub(super) limit: Option<DescriptorLimit>,
    pub(super) children: Vec<Descriptor>,
    pub(super) at: Location,
}

#[derive(Debug)]
pub(super) struct DescriptorLimit {
    /// `None` if it is unlimited.
    pub(super) window: Option<WindowLimit>,
    pub(super) name: Option<String>,
    /// Names of the limits that it replaces.
    replaces: Vec<(String, SourceSpan)>,
    pub(super) shadow: bool,
    pub(super) comments: Vec<String>,
}

const DEPTH_MAX: usize = 16;
const NODE_KEYS: &[&str] = &[
    "key",
    "value",
    "rate_limit",
    "descriptors",
    "shadow_mode",
    "quota_mode",
    "detailed_metric",
    "value_to_metric",
    "share_threshold",
    "metadata",
];
const LIMIT_KEYS: &[&str] =
    &["unit", "unit_multiplier", "requests_per_unit", "unlimited", "name", "replaces"];
/// Keys of Envoy's own `rate_limits`, which its requests carry. A file of the rate limit service has none of them.
const ENVOY_KEYS: &[&str] = &["hits_addend", "is_negative_hits", "apply_on_stream_done"];
const DAY_S: u64 = 86_400;
/// The longest window.
const WINDOW_MAX_S: u64 = 366 * DAY_S;

/// Reads all files. Files with the same domain are merged, in their order.
pub(super) fn read(inputs: &mut [Input]) -> Vec<Domain> {
    let mut domains: Vec<Domain> = Vec::new();
    for (file, Input { root, problems, .. }) in inputs.iter_mut().enumerate() {
        if root.kind() == Kind::Invalid {
            continue;
        }
        reject_unknown(root, &["domain", "descriptors"], problems);
        let nodes = read_nodes(list(root, "descriptors", problems), file, 1, problems);
        let Some(name) = required(root, "domain", problems) else { continue };
        match domains.iter_mut().find(|domain| domain.name == name) {
            Some(domain) => domain.nodes.extend(nodes),
            None => domains.push(Domain { name: name.to_owned(), nodes }),
        }
    }
    for domain in &domains {
        check_duplicates(&domain.nodes, inputs);
        let mut names = HashMap::new();
        collect_names(&domain.nodes, &mut names);
        check_replaces(&domain.nodes, &names, inputs);
    }
    domains
}

fn read_nodes(nodes: &[Node], file: usize, depth: usize, problems: &mut Problems) -> Vec<Descriptor> {
    nodes.iter().filter_map(|node| read_node(node, file, depth, problems)).collect()
}

fn read_node(node: &Node, file: usize, depth: usize, problems: &mut Problems) -> Option<Descriptor> {
    reject_envoy_keys(node, problems);
    reject_unknown(node, &[NODE_KEYS, ENVOY_KEYS].concat(), problems);
    let key = required(node, "key", problems).map(str::to_owned);
    if depth > DEPTH_MAX {
        let message = format!("descriptors are nested more than {DEPTH_MAX} levels deep");
        problems.push(Problem::error("too-deep", node.span, message));
        return None;
    }
    // All keys are read, so that problems of all are reported.
    let value = text(node, "value", problems).filter(|value| !value.is_empty()).map(str::to_owned);
    let shared = flag(node, "share_threshold", problems);
    if shared && !value.as_ref().is_some_and(|value| value.contains('*')) {
        let message = "`share_threshold` needs a value with `*`; envoyproxy/ratelimit rejects this file too";
        problems.push(Problem::error("bad-value", node.span, message));
    }
    let limit = read_limit(node, problems);
    let children = read_nodes(list(node, "descriptors", problems), file, depth + 1, problems);
    let key = key?;
    check_key(&key, node, problems);
    Some(Descriptor { key, value, shared, limit, children, at: Location { file, span: node.span } })
}

/// Reports keys that no condition of a rules file can name.
fn check_key(key: &str, node: &Node, problems: &mut Problems) {
    let fault = match key {
        "" => "an empty key",
        "domain" | "descriptor" | "descriptor_index" => "a key that Tollgate uses for its own attributes",
        key if key.contains('*') => "a key with `*`",
        key if key.contains(',') => "a key with a comma, which separates keys in `descriptor`",
        key if key.len() > 64 => "a key of more than 64 bytes",
        _ => return,
    };
    let span = node.get("key").map_or(node.span, |key| key.span);
    problems.push(
        Problem::error("unsupported", span, format!("unsupported key: {fault}"))
            .help("give the entry another key, here and in Envoy's actions"),
    );
}

/// Reports keys that belong into Envoy's configuration.
fn reject_envoy_keys(node: &Node, problems: &mut Problems) {
    for entry in ENVOY_KEYS.iter().filter_map(|key| node.entry(key)) {
        let message = format!(
            "unsupported `{}`: Envoy sends it with each request, so it belongs into Envoy's configuration",
            entry.key.scalar().unwrap_or_default()
        );
        let help =
            "remove it here; if costs are known only afterwards, add `postpaid: true` to the imported rule";
        problems.push(Problem::error("unsupported", entry.key.span, message).help(help));
    }
}

fn read_limit(node: &Node, problems: &mut Problems) -> Option<DescriptorLimit> {
    let (shadow, quota) = (flag(node, "shadow_mode", problems), flag(node, "quota_mode", problems));
    let mut comments = Vec::new();
    for key in ["detailed_metric", "value_to_metric"] {
        if flag(node, key, problems) {
            ignore(node, key, "metrics are per rule, not per value", problems, &mut comments);
        }
    }
    if node.get("metadata").is_some() {
        ignore(node, "metadata", "responses do not contain it", problems, &mut comments);
    }
    let limit = node.get("rate_limit")?;
    reject_envoy_keys(limit, problems);
    reject_unknown(limit, &[LIMIT_KEYS, ENVOY_KEYS].concat(), problems);
    let unlimited = flag(limit, "unlimited", problems);
    if let Some(unit) = limit.entry("unit").filter(|_| unlimited) {
        let message = "`unit` of an unlimited descriptor; envoyproxy/ratelimit rejects this file too";
        problems
            .push(Problem::error("bad-value", unit.key.span, message).help("remove `unit` or `unlimited`"));
    }
    let name = text(limit, "name", problems).filter(|name| !name.is_empty()).map(str::to_owned);
    let replaces = list(limit, "replaces", problems).iter();
    let replaces =
        replaces.filter_map(|other| Some((required(other, "name", problems)?.to_owned(), other.span)));
    let replaces = replaces.collect();
    let window = if unlimited { None } else { Some(window_limit(limit, problems)?) };
    // It has no effect on what is unlimited.
    if let Some(entry) = node.entry("quota_mode").filter(|_| quota && window.is_some()) {
        let message = "unsupported `quota_mode`: a request is refused as soon as one of its descriptors is";
        problems.push(
            Problem::error("unsupported", entry.key.span, message)
                .help("with one such descriptor per request, remove `quota_mode`: the result is the same"),
        );
    }
    Some(DescriptorLimit { window, name, replaces, shadow, comments })
}

/// Reports a key without a meaning for limits, as a note and as a comment.
fn ignore(node: &Node, key: &str, why: &str, problems: &mut Problems, comments: &mut Vec<String>) {
    let span = node.entry(key).map_or(node.span, |entry| entry.key.span);
    let message = format!("`{key}` is ignored: {why}");
    problems.push(Problem::note("ignored", span, message.clone()));
    comments.push(format!("{message}."));
}

fn window_limit(limit: &Node, problems: &mut Problems) -> Option<WindowLimit> {
    let unit = required(limit, "unit", problems);
    let units = number_up_to(limit, "requests_per_unit", u64::from(u32::MAX), problems);
    let seconds = match unit?.to_ascii_lowercase().as_str() {
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
    let seconds = seconds * multiplier(limit, WINDOW_MAX_S / seconds, problems)?;
    Some(WindowLimit { units: units?, seconds, start: WindowStart::Aligned })
}

/// The number of units in a window.
fn multiplier(limit: &Node, max: u64, problems: &mut Problems) -> Option<u64> {
    let Some(value) = limit.get("unit_multiplier") else { return Some(1) };
    let found = value.u64().filter(|number| (1..=max).contains(number));
    if found.is_none() {
        let message = format!("invalid `unit_multiplier`: expected a whole number from 1 to {max}");
        problems.push(Problem::error("bad-number", value.span, message));
    }
    found
}

/// Reports descriptors of one list with the same key and value. Both texts are joined, as envoyproxy/ratelimit does.
fn check_duplicates(nodes: &[Descriptor], inputs: &mut [Input]) {
    let mut seen: HashMap<String, Location> = HashMap::new();
    for node in nodes {
        let (joined, written) = match &node.value {
            Some(value) => (format!("{}_{value}", node.key), format!("{}: {value}", node.key)),
            None => (node.key.clone(), node.key.clone()),
        };
        match seen.get(&joined) {
            Some(first) => {
                let message =
                    format!("duplicate descriptor `{written}`; envoyproxy/ratelimit rejects it too");
                let problem = Problem::error("duplicate", node.at.span, message);
                let problem = if first.file == node.at.file {
                    problem.also(first.span, "the first one")
                } else {
                    problem.label(format!("the first one is in {}", inputs[first.file].position(first.span)))
                };
                inputs[node.at.file].problems.push(problem);
            }
            None => {
                seen.insert(joined, node.at);
            }
        }
        check_duplicates(&node.children, inputs);
    }
}

fn collect_names<'d>(nodes: &'d [Descriptor], names: &mut HashMap<&'d str, Location>) {
    for node in nodes {
        if let Some(name) = node.limit.as_ref().and_then(|limit| limit.name.as_deref()) {
            names.entry(name).or_insert(node.at);
        }
        collect_names(&node.children, names);
    }
}

/// Reports limits that replace others. To replace a name that no limit has is without effect.
fn check_replaces(nodes: &[Descriptor], names: &HashMap<&str, Location>, inputs: &mut [Input]) {
    for node in nodes {
        for (name, span) in node.limit.iter().flat_map(|limit| &limit.replaces) {
            let Some(replaced) = names.get(name.as_str()) else { continue };
            let message = format!(
                "unsupported `replaces`: a request with both descriptors would also be charged to `{name}`"
            );
            let position = inputs[replaced.file].position(replaced.span);
            inputs[node.at.file].problems.push(
                Problem::error("unsupported", *span, message)
                    .label(format!("the replaced limit is in {position}"))
                    .help("let Envoy send only one of the two descriptors, then remove `replaces`"),
            );
        }
        check_replaces(&node.children, names, inputs);
    }
}
