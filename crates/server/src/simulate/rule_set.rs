//! The rules as they are simulated: which attributes they read, and what a log cannot show.

use std::collections::BTreeSet;

use tollgate::core::rules::{Condition, Cost, Mode, Override, Rule, RuleSet, Test};
use tollgate::core::{Algorithm, SubjectHasher};

use crate::failure::Failure;
use crate::simulate::captured_value::CapturedValues;

/// A rule, or a part of one, that is not simulated, and why.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct NotSimulated {
    pub(super) rule: String,
    pub(super) reason: String,
}

/// What the inputs have.
#[derive(Clone, Copy, Debug)]
pub(super) struct InputKind<'h> {
    pub(super) has_durations: bool,
    /// The hash key of a capture, whose attributes are hashed.
    pub(super) capture: Option<CaptureKey<'h>>,
}

/// How the values of a capture were hashed.
#[derive(Clone, Copy, Debug)]
pub(super) enum CaptureKey<'h> {
    /// With this key.
    Known(&'h SubjectHasher),
    /// With another key than the command has.
    Unknown,
}

/// Returns the names of all attributes that the rules read, in order and without duplicates.
pub(super) fn attribute_names<'r>(sets: impl IntoIterator<Item = &'r RuleSet>) -> Vec<String> {
    let mut names = BTreeSet::new();
    for rules in sets {
        names.extend(rules.partition().iter().cloned());
        let mut of_conditions = |conditions: &[Condition]| {
            names.extend(conditions.iter().map(|condition| condition.attribute.clone()));
        };
        for (index, rule) in rules.rules().iter().enumerate() {
            of_conditions(&rule.conditions);
            rules.overrides_of(index).iter().for_each(|change| of_conditions(&change.conditions));
        }
        rules.deny().iter().chain(rules.bypass()).for_each(|entry| of_conditions(&entry.conditions));
        for rule in rules.rules() {
            names.extend(rule.per.parts.iter().flatten().cloned());
            match &rule.cost {
                Cost::Table { attribute, .. } => {
                    names.insert(attribute.clone());
                }
                // Which words of an expression are attributes is not known here; the others are never set.
                Cost::Expression { text, .. } => names.extend(words(text).map(str::to_owned)),
                Cost::FromRequest | Cost::One | Cost::Constant(_) => (),
            }
        }
    }
    names.into_iter().collect()
}

fn words(expression: &str) -> impl Iterator<Item = &str> {
    expression.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty())
}

/// Returns the rules as the inputs allow to simulate them, and what is left out.
pub(super) fn simulated(
    rules: &RuleSet,
    input: InputKind<'_>,
) -> Result<(RuleSet, Vec<NotSimulated>), Failure> {
    let mut left_out = Vec::new();
    let values = input.capture.map(CapturedValues::new);
    let mut changed: Vec<Rule> = rules.rules().to_vec();
    let mut overrides: Vec<Vec<Override>> = Vec::new();
    for (index, rule) in changed.iter_mut().enumerate() {
        let id = rule.keyspace.rule().to_owned();
        let mut leave_out = |reason: String| left_out.push(NotSimulated { rule: id.clone(), reason });
        if rule.mode != Mode::Off {
            match rule.limit.algorithm() {
                Some(Algorithm::Concurrency) if input.capture.is_some() => {
                    leave_out("concurrency; a capture has no releases".to_owned());
                    rule.mode = Mode::Off;
                }
                Some(Algorithm::Concurrency) if !input.has_durations => {
                    leave_out("concurrency; log has no durations".to_owned());
                    rule.mode = Mode::Off;
                }
                Some(Algorithm::Penalty) => {
                    leave_out("penalty; the log has no reports of failures".to_owned());
                    rule.mode = Mode::Off;
                }
                _ => (),
            }
        }
        if let Some(values) = &values {
            if let Err(reason) = values.rewrite_rule(rule) {
                leave_out(reason);
                rule.mode = Mode::Off;
            }
            let subject_is_hashed =
                rule.per.parts.iter().flatten().any(|name| CapturedValues::is_hashed(name));
            if rule.rollout.basis_points() != 10_000 && rule.rollout.basis_points() != 0 && subject_is_hashed
            {
                leave_out(
                    "rollout; another part of the subjects is chosen, because a capture has hashes"
                        .to_owned(),
                );
            }
        }
        let mut kept = Vec::new();
        for change in rules.overrides_of(index) {
            let mut change = change.clone();
            match values.as_ref().map_or(Ok(()), |values| values.rewrite(&mut change.conditions)) {
                Ok(()) => kept.push(change),
                Err(reason) => leave_out(format!("an override: {reason}")),
            }
        }
        overrides.push(kept);
    }
    let mut lists = [rules.deny().to_vec(), rules.bypass().to_vec()];
    if let Some(values) = &values {
        for (list, name) in lists.iter_mut().zip(["deny", "bypass"]) {
            list.retain_mut(|entry| match values.rewrite(&mut entry.conditions) {
                Ok(()) => true,
                Err(reason) => {
                    left_out.push(NotSimulated { rule: format!("({name})"), reason });
                    false
                }
            });
        }
    }
    let [deny, bypass] = lists;
    let set = RuleSet::new(changed, Vec::new(), deny, bypass, rules.placement().clone());
    let set = set.map_err(|error| {
        Failure::new(format!("cannot simulate the rules: {error}"), "this is a defect; report it")
    })?;
    let set = set.with_overrides(overrides);
    left_out.sort();
    left_out.dedup();
    Ok((set.with_preparation(rules.preparation().clone()).with_unmatched(rules.unmatched()), left_out))
}

/// Whether a test can be made on a hash of the value: only comparisons with whole values can.
pub(super) fn values_of(test: &Test) -> Option<&[String]> {
    match test {
        Test::OneOf(values) => Some(values),
        Test::Prefix(_)
        | Test::Glob(_)
        | Test::Path(_)
        | Test::Address(_)
        | Test::Except(_)
        | Test::Hashed(_) => None,
    }
}
