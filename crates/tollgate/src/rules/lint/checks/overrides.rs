//! Lints about overrides without effect, and about temporary ones that lower a limit.

use tollgate_core::rules::RuleLimit;

use crate::rules::lint::Findings;
use crate::rules::lint::conditions::WrittenCondition;
use crate::rules::lint::context::{Context, WrittenOverride, WrittenRule};
use crate::rules::lint::effect::{Effect, effect};

const DAY_US: u64 = 86_400_000_000;

pub(in crate::rules::lint) fn expired(context: &Context<'_>, found: &mut Findings<'_>) {
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

pub(in crate::rules::lint) fn never_applies(context: &Context<'_>, found: &mut Findings<'_>) {
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

pub(in crate::rules::lint) fn unreachable(context: &Context<'_>, found: &mut Findings<'_>) {
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

/// An override with `until` takes precedence over those without. Usually it is meant to raise a limit for a while.
pub(in crate::rules::lint) fn temporary_lowering(context: &Context<'_>, found: &mut Findings<'_>) {
    for written in context.live() {
        let alive = || written.overrides.iter().filter(|change| !change.has_ended(context.options));
        // `deny` is never meant to raise.
        let is_temporary = |change: &&WrittenOverride<'_>| {
            change.change.until.is_some() && change.change.limit != RuleLimit::Deny
        };
        for temporary in alive().filter(is_temporary) {
            if context.budget.contradiction(&written.conditions, &temporary.conditions).is_some() {
                continue;
            }
            if let Some(lowers @ (Effect::Lowers | Effect::Mixed)) =
                effect(&written.rule.limit, &temporary.change.limit)
            {
                let message = format!(
                    "this temporary override of rule `{}` {} the rule's own limit",
                    written.id(),
                    lowering(lowers),
                );
                let fix =
                    "to raise the limit, write higher numbers; to lower it for a while, ignore this note";
                let problem = found.note(temporary.span_of("limit"), message, fix);
                found.push(problem.also(written.span_of("limit"), "the rule's own limit"));
                continue;
            }
            for permanent in alive().filter(|change| change.change.until.is_none()) {
                lowers_permanent(context, written, temporary, permanent, found);
            }
        }
    }
}

/// An override that raises a limit is meant to give more. Those with `until` have [their own lint](temporary_lowering).
pub(in crate::rules::lint) fn raise_that_lowers(context: &Context<'_>, found: &mut Findings<'_>) {
    for written in context.live() {
        let permanent: Vec<&WrittenOverride<'_>> =
            written.overrides.iter().filter(|change| change.change.until.is_none()).collect();
        for (at, better) in permanent.iter().enumerate() {
            // One that scales raises the other one as well.
            let raises = effect(&written.rule.limit, &better.change.limit) == Some(Effect::RaisesOrKeeps);
            if !raises || better.change.scaled {
                continue;
            }
            let lowered = permanent[at + 1..].iter().find(|beaten| {
                matches!(
                    effect(&beaten.change.limit, &better.change.limit),
                    Some(Effect::Lowers | Effect::Mixed)
                ) && context.budget.contradiction(&better.conditions, &beaten.conditions).is_none()
                    && context.budget.contradiction(&written.conditions, &beaten.conditions).is_none()
                    && context.budget.contradiction(&written.conditions, &better.conditions).is_none()
            });
            if let Some(beaten) = lowered {
                let message = format!(
                    "this override raises the limit of rule `{}`, and lowers that of another override, over which it takes \
                     precedence",
                    written.id()
                );
                let fix = "to give more to both, write numbers that are not lower, or use `scale`";
                let problem = found.note(better.span_of("limit"), message, fix);
                found.push(problem.also(beaten.span_of("limit"), "this override grants more"));
            }
        }
    }
}

/// Reports a temporary override that replaces a permanent one with higher numbers.
fn lowers_permanent(
    context: &Context<'_>,
    written: &WrittenRule<'_>,
    temporary: &WrittenOverride<'_>,
    permanent: &WrittenOverride<'_>,
    found: &mut Findings<'_>,
) {
    let Some(lowers @ (Effect::Lowers | Effect::Mixed)) =
        effect(&permanent.change.limit, &temporary.change.limit)
    else {
        return;
    };
    let together = context.budget.contradiction(&temporary.conditions, &permanent.conditions).is_none()
        && context.budget.contradiction(&written.conditions, &permanent.conditions).is_none();
    if together {
        let message = format!(
            "this temporary override of rule `{}` {} another override: one with `until` always takes precedence",
            written.id(),
            lowering(lowers),
        );
        let fix = "add a condition that excludes those requests, or write numbers that are not lower";
        let problem = found.warning(temporary.span_of("limit"), message, fix);
        found.push(problem.also(permanent.span_of("limit"), "this override grants more"));
    }
}

const fn lowering(effect: Effect) -> &'static str {
    match effect {
        Effect::Mixed => "raises one number and lowers another of",
        Effect::Lowers | Effect::RaisesOrKeeps => "lowers",
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
