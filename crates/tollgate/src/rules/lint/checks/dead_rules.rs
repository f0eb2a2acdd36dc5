//! Lints about rules that never affect a decision.

use std::collections::HashSet;

use tollgate_core::Limit;
use tollgate_core::rules::{Cost, Missing, Mode, Rollout, RuleLimit, Test};

use crate::rules::lint::Findings;
use crate::rules::lint::conditions::WrittenCondition;
use crate::rules::lint::context::{Context, WrittenRule};

pub(in crate::rules::lint) fn free_of_charge(context: &Context<'_>, found: &mut Findings<'_>) {
    for written in context.live() {
        // These change through operations other than charges.
        let moved = matches!(
            written.rule.limit,
            RuleLimit::Deny | RuleLimit::Fixed(Limit::Penalty(_) | Limit::Meter(_))
        );
        if !moved && written.rule.cost.max_cost() == Some(0) {
            let message = format!("every request under rule `{}` costs 0, so it never refuses", written.id());
            let fix = "set a cost of 1 or more; use 0 only for requests that must not count";
            found.push(found.warning(written.span_of("cost"), message, fix));
        }
    }
}

pub(in crate::rules::lint) fn rule_off(context: &Context<'_>, found: &mut Findings<'_>) {
    for written in context.rules.iter().filter(|written| written.rule.mode == Mode::Off) {
        let message = format!("rule `{}` is off: it neither refuses nor counts", written.id());
        let fix = "`mode: shadow` counts without refusing; remove the rule if it is not needed";
        found.push(found.note(written.span_of("mode"), message, fix));
    }
}

pub(in crate::rules::lint) fn empty_rollout(context: &Context<'_>, found: &mut Findings<'_>) {
    for written in context.rules.iter().filter(|written| written.rule.mode == Mode::Enforce) {
        if written.rule.rollout.basis_points() == 0 {
            let message =
                format!("rule `{}` is enforced for 0% of its subjects, so it never refuses", written.id());
            let fix = "raise the share step by step, like `rollout: 1%`, or write `mode: shadow`";
            found.push(found.note(written.span_of("rollout"), message, fix));
        }
    }
}

pub(in crate::rules::lint) fn never_matches(context: &Context<'_>, found: &mut Findings<'_>) {
    for written in context.live() {
        // Only a preset and its use can both have a condition on one attribute; the preset's comes first.
        if let Some((_, own)) = context.budget.contradiction(&written.conditions, &written.conditions) {
            let message = format!(
                "rule `{}` never matches: the preset has a condition on `{}` too, and no value meets both",
                written.id(),
                own.attribute,
            );
            let fix = "remove this condition, or write the rule out with the intended condition";
            found.push(found.warning(own.span, message, fix));
        }
    }
}

pub(in crate::rules::lint) fn value_never_seen(context: &Context<'_>, found: &mut Findings<'_>) {
    let rules = context.live().flat_map(|written| {
        let overrides = written.overrides.iter().flat_map(|change| &change.conditions);
        written.conditions.iter().chain(overrides)
    });
    let exceptions = context.exceptions.iter().flat_map(|exception| &exception.conditions);
    // A condition on a preset is written once and belongs to several rules.
    let mut seen = HashSet::new();
    for condition in rules.chain(exceptions).filter(|condition| seen.insert(condition.span)) {
        match (condition.attribute, condition.test) {
            ("method", Test::OneOf(values)) => {
                if let Some(value) = values.iter().find(|value| value.bytes().any(|b| b.is_ascii_lowercase()))
                {
                    let message = format!("method `{value}` never matches: methods are uppercase");
                    let fix = format!("write `{}`", value.to_ascii_uppercase());
                    found.push(found.warning(condition.span, message, fix));
                }
            }
            ("path", test) => path_never_seen(condition, test, found),
            _ => {}
        }
    }
}

fn path_never_seen(condition: &WrittenCondition<'_>, test: &Test, found: &mut Findings<'_>) {
    let without_slash = |text: &&str| !text.starts_with(['/', '*', '?']) && !text.is_empty();
    let wrong = match test.required() {
        Test::Except(_) | Test::Hashed(_) => None,
        Test::OneOf(values) => values.iter().map(String::as_str).find(without_slash),
        Test::Prefix(text) | Test::Glob(text) => Some(text.as_str()).filter(without_slash),
        Test::Address(_) => None,
        Test::Path(_) => {
            if let Some(path) = condition.path.filter(|path| path.contains(['?', '#'])) {
                let message = format!("path `{path}` never matches: the query is not part of the path");
                found.push(found.warning(
                    condition.span,
                    message,
                    "remove everything from the `?` or `#` on",
                ));
            }
            None
        }
    };
    if let Some(text) = wrong {
        let message = format!("path `{text}` never matches: paths start with `/`");
        found.push(found.warning(condition.span, message, format!("write `/{text}`")));
    }
}

pub(in crate::rules::lint) fn unreachable_rule(context: &Context<'_>, found: &mut Findings<'_>) {
    let refusing_rules: Vec<&WrittenRule<'_>> =
        context.live().filter(|written| refuses_everything(written)).collect();
    for written in context.live() {
        let known: Vec<&WrittenCondition<'_>> = written.conditions.iter().collect();
        let exception = context
            .exceptions
            .iter()
            .find(|exception| context.budget.implies_all(&known, &exception.conditions));
        if let Some(exception) = exception {
            let message = format!(
                "rule `{}` is never checked: all its requests are on the `{}` list",
                written.id(),
                exception.list,
            );
            let fix = "add a condition to the list entry that the rule does not have, or remove the rule";
            let problem = found.warning(written.span(), message, fix);
            found.push(problem.also(exception.node.span, "this entry matches them"));
            continue;
        }
        if written.rule.limit == RuleLimit::Deny {
            continue;
        }
        if let Some(other) =
            refusing_rules.iter().find(|other| context.budget.implies_all(&known, &other.conditions))
        {
            let message = format!(
                "rule `{}` never decides: rule `{}` refuses all its requests",
                written.id(),
                other.id()
            );
            let fix = "add a condition to the rule with `limit: deny`, or remove this one";
            let problem = found.warning(written.span(), message, fix);
            found.push(problem.also(other.span_of("limit"), "refused here"));
        }
    }
}

fn refuses_everything(written: &WrittenRule<'_>) -> bool {
    let rule = written.rule;
    let has_every_subject = rule.per.parts.is_empty() || rule.missing == Missing::Refuse;
    rule.limit == RuleLimit::Deny
        && rule.mode == Mode::Enforce
        && rule.rollout == Rollout::ALL
        && has_every_subject
        && written.overrides.is_empty()
}

pub(in crate::rules::lint) fn shadowed_rule(context: &Context<'_>, found: &mut Findings<'_>) {
    for (at, loose) in context.live().enumerate() {
        let stricter = context.live().enumerate().find(|&(other_at, strict)| {
            other_at != at
                && context.budget.spend(1).is_some()
                && shadows(context, loose, strict)
                // Of two equal rules, only the later one is reported.
                && (other_at < at || !shadows(context, strict, loose))
        });
        let Some((_, strict)) = stricter else { continue };
        let message = format!(
            "while the store answers, rule `{}` never decides: rule `{}` counts the same subjects and requests \
             with an equal or stricter limit",
            loose.id(),
            strict.id(),
        );
        let fix = "remove it, make its limit stricter, or add a condition to the other rule";
        let problem = found.warning(loose.span(), message, fix);
        found.push(problem.also(strict.span(), "this limit is reached first"));
    }
}

/// Whether `strict` refuses every request that `loose` would refuse.
///
/// Both count the same requests at the same cost, and `strict` may count more. A request charges both or neither, so
/// the consumption under `loose` never exceeds that under `strict`.
fn shadows(context: &Context<'_>, loose: &WrittenRule<'_>, strict: &WrittenRule<'_>) -> bool {
    let (rule, other) = (loose.rule, strict.rule);
    let enforced = match rule.mode {
        Mode::Enforce => other.rollout.basis_points() >= rule.rollout.basis_points(),
        // A shadow rule reports requests that the other rule does not refuse, so that one must be enforced for all.
        Mode::Shadow => other.rollout == Rollout::ALL,
        Mode::Off => false,
    };
    enforced
        && other.mode == Mode::Enforce
        && rule.per == other.per
        && (rule.missing == Missing::Skip || other.missing == Missing::Refuse)
        && loose.overrides.is_empty()
        && strict.overrides.is_empty()
        && same_cost(&rule.cost, &other.cost)
        && is_no_stricter(&rule.limit, &other.limit)
        && context.budget.implies_all(&loose.conditions.iter().collect::<Vec<_>>(), &strict.conditions)
}

fn same_cost(one: &Cost, other: &Cost) -> bool {
    match (one, other) {
        (Cost::FromRequest, Cost::FromRequest) | (Cost::One, Cost::One) => true,
        (Cost::Constant(one), Cost::Constant(other)) => one == other,
        (
            Cost::Table { attribute, costs, default },
            Cost::Table { attribute: other_attribute, costs: other_costs, default: other_default },
        ) => attribute == other_attribute && costs == other_costs && default == other_default,
        (
            Cost::Expression { text, default, .. },
            Cost::Expression { text: other_text, default: other_default, .. },
        ) => text == other_text && default == other_default,
        _ => false,
    }
}

/// Whether `loose` admits everything that `strict` admits at equal or lower consumption. Returns `false` if unknown.
fn is_no_stricter(loose: &RuleLimit, strict: &RuleLimit) -> bool {
    match (loose, strict) {
        (
            RuleLimit::Calendar { allowance, grace, calendar },
            RuleLimit::Calendar { allowance: other, grace: other_grace, calendar: other_calendar },
        ) => calendar == other_calendar && allowance + grace >= other + other_grace,
        (RuleLimit::Fixed(loose), RuleLimit::Fixed(strict)) => match (loose, strict) {
            // A window inside another one never counts more.
            (Limit::FixedWindow(loose), Limit::FixedWindow(strict)) => {
                loose.limit() >= strict.limit() && strict.window().us().is_multiple_of(loose.window().us())
            }
            (Limit::SlidingWindow(loose), Limit::SlidingWindow(strict)) => {
                loose.limit() >= strict.limit()
                    && (loose.window(), loose.buckets(), loose.counting())
                        == (strict.window(), strict.buckets(), strict.counting())
            }
            (Limit::SlidingLog(loose), Limit::SlidingLog(strict)) => {
                loose.limit() >= strict.limit()
                    && loose.window() <= strict.window()
                    && loose.entries() >= strict.entries().min(strict.limit())
            }
            (Limit::Bucket(loose), Limit::Bucket(strict)) => {
                let ((drain, scale), (strict_drain, strict_scale)) = (loose.rate(), strict.rate());
                let faster = u128::from(drain) * u128::from(strict_scale)
                    >= u128::from(strict_drain) * u128::from(scale);
                faster
                    && loose.capacity() >= strict.capacity()
                    && (loose.kind(), loose.tick()) == (strict.kind(), strict.tick())
            }
            (Limit::Concurrency(loose), Limit::Concurrency(strict)) => {
                loose.limit() >= strict.limit() && loose.lease() <= strict.lease()
            }
            (Limit::Quota(loose), Limit::Quota(strict)) => {
                loose.period() == strict.period()
                    && loose.allowance() + loose.grace() >= strict.allowance() + strict.grace()
            }
            (loose, strict) => loose == strict,
        },
        _ => false,
    }
}
