//! Reads the configuration of envoyproxy/ratelimit.
//!
//! There a descriptor finds one node of a tree, at most, and is counted by it. Ways through the tree that have the same keys
//! are told apart by values: the most general one becomes a rule, and the others overrides of it, so that a descriptor is
//! counted once here too.

use tollgate_document::{Node, Problem, Problems};

use super::reading::{list, required, warn_unknown};
use super::tree::{Step, Value, Way, ways};
use super::written::{Bypass, Override, Rule, Wanted, Written};

/// Characters that an attribute's name may have besides letters and digits.
const PLAIN: &str = "._-";

pub(super) fn read(root: &Node, problems: &mut Problems) -> Option<Written> {
    let domain = required(root, "domain", problems)?;
    warn_unknown(root, &["domain", "descriptors"], problems);
    let mut found = Vec::new();
    ways(list(root, "descriptors", problems), &[], problems, &mut found);
    let mut written = Written::new(
        "envoyproxy/ratelimit",
        &[
            "A request is charged to all of its descriptors, or to none if one of them refuses. There, what was refused \
             counted too.",
            "When the store cannot answer, requests pass (`on_failure: open`), as they do with Envoy's \
             `failure_mode_deny: false`. Leave the line out to refuse them.",
            "`descriptor` holds the keys of a descriptor in their order, so that a rule meets the descriptors of its form \
             and no longer ones.",
        ],
    );
    while !found.is_empty() {
        let keys: Vec<String> = found[0].keys().into_iter().map(str::to_owned).collect();
        let (form, others) = found.into_iter().partition(|way| way.keys() == keys);
        found = others;
        write_form(domain, form, &mut written, problems);
    }
    Some(written)
}

/// All ways with the same keys.
fn write_form(domain: &str, form: Vec<Way>, written: &mut Written, problems: &mut Problems) {
    let names = names(&form[0], problems);
    // Without a limit: past all rules, unless everything of this form is.
    for way in form.iter().filter(|way| way.amount.is_none() && way.named() > 0) {
        let conditions = [base(domain, way), values(way, &names)].concat();
        written.bypass.push(Bypass { conditions, reason: "unlimited".to_owned() });
    }
    let mut limited: Vec<Way> = form.into_iter().filter(|way| way.amount.is_some()).collect();
    // The more general first, and of those that name as many values the one that wins last.
    limited.sort_by(|one, two| (one.named(), one.rank()).cmp(&(two.named(), two.rank())));
    let mut rules: Vec<(Way, String)> = Vec::new();
    for mut way in limited {
        if let Some((rule, id)) = rules.iter().rfind(|(rule, _)| rule.covers(&way)) {
            write_override(rule, id, &way, &names, written, problems);
            continue;
        }
        if rules.iter().any(|(rule, _)| rule.meets(&way)) {
            let message = "a descriptor that fits this and another one is counted by both; there it is only by the one \
                           with the more exact value";
            lost(message, &mut way, problems);
        }
        let id = write_rule(domain, &way, &names, written);
        rules.push((way, id));
    }
}

/// Says that something is not carried over.
fn lost(message: &str, way: &mut Way, problems: &mut Problems) {
    problems.push(Problem::warning("not-carried-over", way.span, message));
    way.comments.push(format!("NOT CARRIED OVER: {message}."));
}

/// Other numbers for some of those that a rule takes.
fn write_override(
    rule: &Way,
    id: &str,
    way: &Way,
    names: &[String],
    written: &mut Written,
    problems: &mut Problems,
) {
    let Some(amount) = way.amount else { return };
    let mut way = way.clone();
    if way.shadow != rule.shadow {
        lost(&format!("`shadow_mode` of these values, it is that of `{id}`"), &mut way, problems);
    }
    if way.steps.iter().any(|step| matches!(step.value, Value::Prefix { together: true, .. })) {
        lost("`share_threshold`, each value is counted by itself", &mut way, problems);
    }
    // What the rule names already need not be said again.
    let differs = |((name, _), step): (&(String, Wanted), &Step)| {
        !rule.steps.iter().zip(names).any(|(of_rule, of)| of == name && of_rule.value == step.value)
    };
    let named = way.steps.iter().filter(|step| step.value != Value::Any);
    let all = values(&way, names);
    let conditions =
        all.iter().zip(named).filter(|pair| differs(*pair)).map(|(condition, _)| condition.clone());
    let conditions = conditions.collect();
    written.overrides.push(Override { comments: way.comments, rule: id.to_owned(), conditions, amount });
}

fn write_rule(domain: &str, way: &Way, names: &[String], written: &mut Written) -> String {
    let amount = way.amount.unwrap_or(super::written::Amount { units: 0, seconds: 1 });
    let id = match &way.name {
        Some(name) => written.id([name.as_str()]),
        None => {
            let word = |step: &Step| match &step.value {
                Value::Any => vec![step.key.clone()],
                Value::Prefix { prefix: value, .. } | Value::Exact(value) => {
                    vec![step.key.clone(), value.clone()]
                }
            };
            let words: Vec<String> = way.steps.iter().flat_map(word).collect();
            written.id([domain].into_iter().chain(words.iter().map(String::as_str)))
        }
    };
    let counted = way.steps.iter().zip(names).filter(|(step, _)| match &step.value {
        Value::Any => true,
        Value::Prefix { together, .. } => !together,
        Value::Exact(_) => false,
    });
    written.rules.push(Rule {
        comments: way.comments.clone(),
        id: id.clone(),
        conditions: [base(domain, way), values(way, names)].concat(),
        per: counted.map(|(_, name)| name.clone()).collect(),
        amount,
        shadow: way.shadow,
    });
    id
}

/// Which domain, and which keys.
fn base(domain: &str, way: &Way) -> Vec<(String, Wanted)> {
    vec![
        ("domain".to_owned(), Wanted::Is(domain.to_owned())),
        ("descriptor".to_owned(), Wanted::Is(way.keys().join(","))),
    ]
}

fn values(way: &Way, names: &[String]) -> Vec<(String, Wanted)> {
    let wanted = |(step, name): (&Step, &String)| match &step.value {
        Value::Any => None,
        Value::Prefix { prefix, .. } => Some((name.clone(), Wanted::StartsWith(prefix.clone()))),
        Value::Exact(value) => Some((name.clone(), Wanted::Is(value.clone()))),
    };
    way.steps.iter().zip(names).filter_map(wanted).collect()
}

/// The attributes of these entries: their keys, with a number where one occurs again.
fn names(way: &Way, problems: &mut Problems) -> Vec<String> {
    let steps = &way.steps;
    let mut names = Vec::new();
    for (at, step) in steps.iter().enumerate() {
        let before = steps[..at].iter().filter(|other| other.key == step.key).count();
        let key: String = step
            .key
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() || PLAIN.contains(c) { c } else { '_' })
            .collect();
        if key != step.key {
            let message = format!("no rule can name the key `{}`; it is called `{key}` here", step.key);
            problems.push(
                Problem::warning("renamed", way.span, message)
                    .help(format!("tell the server: grpc_attributes: \"{}={key}\"", step.key)),
            );
        }
        names.push(if before == 0 { key } else { format!("{key}_{}", before + 1) });
    }
    names
}
