//! Lints about overrides without effect.

use super::Findings;
use super::conditions::WrittenCondition;
use super::context::{Context, WrittenOverride};

const DAY_US: u64 = 86_400_000_000;

pub(super) fn expired(context: &Context<'_>, found: &mut Findings<'_>) {
    for written in &context.rules {
        for change in written.overrides.iter().filter(|change| change.has_ended(context.options)) {
            let Some(until) = change.change.until else { continue };
            let ago = match context.options.now.since(until).us() / DAY_US {
                0 => "less than a day ago".to_owned(),
                1 => "a day ago".to_owned(),
                days => format!("{days} days ago"),
            };
            let message = format!("this override of rule `{}` ended {ago}", written.id());
            let fix = "remove it, or set `until` to a time in the future";
            found.push(found.warning(change.span_of("until"), message, fix));
        }
    }
}

pub(super) fn never_applies(context: &Context<'_>, found: &mut Findings<'_>) {
    for written in context.live() {
        for change in &written.overrides {
            let Some((own, other)) = context.budget.contradiction(&written.conditions, &change.conditions)
            else {
                continue;
            };
            let message = format!(
                "this override never applies: no `{}` matches both the override and rule `{}`",
                own.attribute,
                written.id(),
            );
            let fix = format!("remove it, or set its `{}` to a value that the rule matches", own.attribute);
            let problem = found.warning(other.span, message, fix);
            found.push(problem.also(own.span, "the rule's condition"));
        }
    }
}

pub(super) fn unreachable(context: &Context<'_>, found: &mut Findings<'_>) {
    for written in context.live() {
        let alive: Vec<&WrittenOverride<'_>> =
            written.overrides.iter().filter(|change| !change.has_ended(context.options)).collect();
        for (at, beaten) in alive.iter().enumerate() {
            if context.budget.contradiction(&written.conditions, &beaten.conditions).is_some() {
                continue;
            }
            let known: Vec<&WrittenCondition<'_>> =
                written.conditions.iter().chain(&beaten.conditions).collect();
            let better = alive[..at].iter().find(|better| {
                outlasts(better, beaten) && context.budget.implies_all(&known, &better.conditions)
            });
            if let Some(better) = better {
                let message = format!(
                    "this override of rule `{}` never applies: another one always takes precedence",
                    written.id()
                );
                let fix = "remove one of them, or give this one a condition that the other does not have";
                let problem = found.warning(beaten.span_of("when"), message, fix);
                found.push(problem.also(better.span_of("when"), "this override takes precedence"));
            }
        }
    }
}

/// Whether the first is in force at least as long as the second.
fn outlasts(first: &WrittenOverride<'_>, second: &WrittenOverride<'_>) -> bool {
    match (first.change.until, second.change.until) {
        (None, _) => true,
        (Some(first), Some(second)) => first >= second,
        (Some(_), None) => false,
    }
}
