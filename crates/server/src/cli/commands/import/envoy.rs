//! Converts the configuration of envoyproxy/ratelimit.
//!
//! That limiter matches a descriptor to at most one node of a tree, which counts it. Paths through the tree with the same
//! keys differ only in their values. The most general one becomes a rule and the others become overrides of it, so that a
//! descriptor is counted once here too.

use tollgate_document::{Node, Problem, Problems};

use super::descriptor_path::{DescriptorPath, PathEntry, Value, collect_paths};
use super::fields::{list, required, warn_unknown};
use super::rules_file::{Bypass, Override, Rule, RulesFile, ValueTest, WindowLimit};

/// Characters in attribute names, in addition to letters and digits.
const PLAIN: &str = "._-";

pub(super) fn convert(root: &Node, problems: &mut Problems) -> Option<RulesFile> {
    let domain = required(root, "domain", problems)?;
    warn_unknown(root, &["domain", "descriptors"], problems);
    let mut found = Vec::new();
    collect_paths(list(root, "descriptors", problems), &[], problems, &mut found);
    let mut rules_file = RulesFile::new(
        "envoyproxy/ratelimit",
        &[
            "Tollgate charges a request to all of its descriptors, or to none if one of them refuses. envoyproxy/ratelimit also \
             counts refused requests.",
            "If the store does not answer, requests are allowed (`on_failure: open`), as with Envoy's `failure_mode_deny: \
             false`. Remove the line to refuse them.",
            "`descriptor` contains the keys of a descriptor in their order, so that a rule matches only descriptors with \
             exactly these keys.",
        ],
    );
    while !found.is_empty() {
        let keys: Vec<String> = found[0].keys().into_iter().map(str::to_owned).collect();
        let (same_keys, others) = found.into_iter().partition(|path| path.keys() == keys);
        found = others;
        convert_group(domain, same_keys, &mut rules_file, problems);
    }
    Some(rules_file)
}

/// Converts all paths with the same keys.
fn convert_group(
    domain: &str,
    paths: Vec<DescriptorPath>,
    rules_file: &mut RulesFile,
    problems: &mut Problems,
) {
    let names = attribute_names(&paths[0], problems);
    // An unlimited path bypasses all rules, unless all values are unlimited.
    for path in paths.iter().filter(|path| path.limit.is_none() && path.value_count() > 0) {
        let conditions = [base_conditions(domain, path), value_conditions(path, &names)].concat();
        rules_file.bypass.push(Bypass { conditions, reason: "unlimited".to_owned() });
    }
    let mut limited: Vec<DescriptorPath> = paths.into_iter().filter(|path| path.limit.is_some()).collect();
    // General paths come first; among paths with the same number of values, the winning one comes last.
    limited.sort_by(|one, two| (one.value_count(), one.rank()).cmp(&(two.value_count(), two.rank())));
    let mut rules: Vec<(DescriptorPath, String)> = Vec::new();
    for mut path in limited {
        if let Some((rule, id)) = rules.iter().rfind(|(rule, _)| rule.covers(&path)) {
            add_override(rule, id, &path, &names, rules_file, problems);
            continue;
        }
        if rules.iter().any(|(rule, _)| rule.overlaps(&path)) {
            let message = "a descriptor that matches this rule and another one is counted by both; \
                           envoyproxy/ratelimit counts it only by the one with the more specific value";
            not_carried_over(message, &mut path, problems);
        }
        let id = add_rule(domain, &path, &names, rules_file);
        rules.push((path, id));
    }
}

/// Reports something that is not carried over, as a warning and as a comment.
fn not_carried_over(message: &str, path: &mut DescriptorPath, problems: &mut Problems) {
    problems.push(Problem::warning("not-carried-over", path.span, message));
    path.comments.push(format!("NOT CARRIED OVER: {message}."));
}

/// Adds an override of a rule for more specific values.
fn add_override(
    rule: &DescriptorPath,
    id: &str,
    path: &DescriptorPath,
    names: &[String],
    rules_file: &mut RulesFile,
    problems: &mut Problems,
) {
    let Some(limit) = path.limit else { return };
    let mut path = path.clone();
    if path.shadow != rule.shadow {
        let message = format!("`shadow_mode` of these values; they have the mode of `{id}`");
        not_carried_over(&message, &mut path, problems);
    }
    if path.entries.iter().any(|entry| matches!(entry.value, Value::Prefix { shared: true, .. })) {
        not_carried_over("`share_threshold`; each value is counted separately", &mut path, problems);
    }
    // A condition of the rule is not repeated.
    let differs = |((name, _), entry): (&(String, ValueTest), &PathEntry)| {
        !rule.entries.iter().zip(names).any(|(of_rule, of)| of == name && of_rule.value == entry.value)
    };
    let with_value = path.entries.iter().filter(|entry| entry.value != Value::Any);
    let all = value_conditions(&path, names);
    let conditions =
        all.iter().zip(with_value).filter(|pair| differs(*pair)).map(|(condition, _)| condition.clone());
    let conditions = conditions.collect();
    rules_file.overrides.push(Override { comments: path.comments, rule: id.to_owned(), conditions, limit });
}

/// Adds a rule and returns its id.
fn add_rule(domain: &str, path: &DescriptorPath, names: &[String], rules_file: &mut RulesFile) -> String {
    let limit = path.limit.unwrap_or(WindowLimit { units: 0, seconds: 1 });
    let id = match &path.name {
        Some(name) => rules_file.unique_id([name.as_str()]),
        None => {
            let words = |entry: &PathEntry| match &entry.value {
                Value::Any => vec![entry.key.clone()],
                Value::Prefix { prefix: value, .. } | Value::Exact(value) => {
                    vec![entry.key.clone(), value.clone()]
                }
            };
            let words: Vec<String> = path.entries.iter().flat_map(words).collect();
            rules_file.unique_id([domain].into_iter().chain(words.iter().map(String::as_str)))
        }
    };
    let counted = path.entries.iter().zip(names).filter(|(entry, _)| match &entry.value {
        Value::Any => true,
        Value::Prefix { shared, .. } => !shared,
        Value::Exact(_) => false,
    });
    rules_file.rules.push(Rule {
        comments: path.comments.clone(),
        id: id.clone(),
        conditions: [base_conditions(domain, path), value_conditions(path, names)].concat(),
        per: counted.map(|(_, name)| name.clone()).collect(),
        limit,
        shadow: path.shadow,
    });
    id
}

/// Conditions on the domain and the keys.
fn base_conditions(domain: &str, path: &DescriptorPath) -> Vec<(String, ValueTest)> {
    vec![
        ("domain".to_owned(), ValueTest::Is(domain.to_owned())),
        ("descriptor".to_owned(), ValueTest::Is(path.keys().join(","))),
    ]
}

/// Conditions on the values.
fn value_conditions(path: &DescriptorPath, names: &[String]) -> Vec<(String, ValueTest)> {
    let condition = |(entry, name): (&PathEntry, &String)| match &entry.value {
        Value::Any => None,
        Value::Prefix { prefix, .. } => Some((name.clone(), ValueTest::StartsWith(prefix.clone()))),
        Value::Exact(value) => Some((name.clone(), ValueTest::Is(value.clone()))),
    };
    path.entries.iter().zip(names).filter_map(condition).collect()
}

/// The attribute names of the entries: their keys, with a number if a key is repeated.
fn attribute_names(path: &DescriptorPath, problems: &mut Problems) -> Vec<String> {
    let entries = &path.entries;
    let mut names = Vec::new();
    for (at, entry) in entries.iter().enumerate() {
        let before = entries[..at].iter().filter(|other| other.key == entry.key).count();
        let key: String = entry
            .key
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() || PLAIN.contains(c) { c } else { '_' })
            .collect();
        if key != entry.key {
            let message =
                format!("key `{}` is not a valid attribute name; it was renamed to `{key}`", entry.key);
            problems.push(
                Problem::warning("renamed", path.span, message).help(format!(
                    "set grpc_attributes: \"{}={key}\" in the server's configuration",
                    entry.key
                )),
            );
        }
        names.push(if before == 0 { key } else { format!("{key}_{}", before + 1) });
    }
    names
}
