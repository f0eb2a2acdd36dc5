//! Attributes of the request that no rule reads. They are often misspelled.

use tollgate::core::Attributes;
use tollgate::core::rules::{Condition, Cost, RuleSet};
use tollgate_document::suggest;

/// Returns a sentence for each attribute that no rule reads.
pub(super) fn unused_attributes(rules: &RuleSet, attributes: &Attributes<'_>) -> Vec<String> {
    let known = read_attributes(rules);
    let unused = attributes.iter().filter(|(name, _)| !known.contains(name) && !in_expression(rules, name));
    unused
        .map(|(name, _)| match suggest(name, known.iter().copied()) {
            Some(near) => format!("no rule reads the attribute `{name}`; did you mean `{near}`?"),
            None => format!("no rule reads the attribute `{name}`"),
        })
        .collect()
}

/// The names of all attributes that rules, overrides and lists read, except those in cost expressions.
fn read_attributes(rules: &RuleSet) -> Vec<&str> {
    let mut names: Vec<&str> = rules.partition().iter().map(String::as_str).collect();
    for (index, rule) in rules.rules().iter().enumerate() {
        names.extend(attribute_names(&rule.conditions));
        names.extend(rule.per.parts.iter().flatten().map(String::as_str));
        names.extend(rule.on_failure.by.iter().map(|(name, _)| name.as_str()));
        if let Cost::Table { attribute, .. } = &rule.cost {
            names.push(attribute);
        }
        names.extend(rules.overrides_of(index).iter().flat_map(|change| attribute_names(&change.conditions)));
    }
    names.extend(
        rules.deny().iter().chain(rules.bypass()).flat_map(|entry| attribute_names(&entry.conditions)),
    );
    names.sort_unstable();
    names.dedup();
    names
}

fn attribute_names(conditions: &[Condition]) -> impl Iterator<Item = &str> {
    conditions.iter().map(|condition| condition.attribute.as_str())
}

/// Whether a cost expression contains the name.
fn in_expression(rules: &RuleSet, name: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    rules.rules().iter().any(|rule| match &rule.cost {
        Cost::Expression { text, .. } => text.split(|c| !word(c)).any(|found| found == name),
        _ => false,
    })
}
