//! Attributes that were given and that no rule looks at: most often a slip of the finger.

use tollgate::core::Attributes;
use tollgate::core::rules::{Condition, Cost, RuleSet};
use tollgate_document::suggest;

/// A sentence for each of them.
pub(super) fn unused(rules: &RuleSet, attributes: &Attributes<'_>) -> Vec<String> {
    let looked_at = looked_at(rules);
    let unused =
        attributes.iter().filter(|(name, _)| !looked_at.contains(name) && !in_expression(rules, name));
    unused
        .map(|(name, _)| match suggest(name, looked_at.iter().copied()) {
            Some(near) => format!("no rule looks at `{name}`; did you mean `{near}`?"),
            None => format!("no rule looks at `{name}`"),
        })
        .collect()
}

fn looked_at(rules: &RuleSet) -> Vec<&str> {
    let mut names: Vec<&str> = rules.partition().iter().map(String::as_str).collect();
    for (place, rule) in rules.rules().iter().enumerate() {
        names.extend(of(&rule.conditions));
        names.extend(rule.per.parts.iter().flatten().map(String::as_str));
        names.extend(rule.on_failure.by.iter().map(|(name, _)| name.as_str()));
        if let Cost::Table { attribute, .. } = &rule.cost {
            names.push(attribute);
        }
        names.extend(rules.overrides_of(place).iter().flat_map(|change| of(&change.conditions)));
    }
    names.extend(rules.deny().iter().chain(rules.bypass()).flat_map(|exception| of(&exception.conditions)));
    names.sort_unstable();
    names.dedup();
    names
}

fn of(conditions: &[Condition]) -> impl Iterator<Item = &str> {
    conditions.iter().map(|condition| condition.attribute.as_str())
}

/// Whether the name is a word of some cost expression.
fn in_expression(rules: &RuleSet, name: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    rules.rules().iter().any(|rule| match &rule.cost {
        Cost::Expression { text, .. } => text.split(|c| !word(c)).any(|found| found == name),
        _ => false,
    })
}
