//! Lints of rules that can never decide anything.

use std::collections::HashSet;

use tollgate_core::Limit;
use tollgate_core::rules::{Cost, Missing, Mode, Rollout, RuleLimit, Test};

use super::Findings;
use super::claims::Claim;
use super::context::{Context, WrittenRule};

pub(super) fn free_of_charge(context: &Context<'_>, found: &mut Findings<'_>) {
    for written in context.live() {
        // These are moved by other operations than charges.
        let moved = matches!(
            written.rule.limit,
            RuleLimit::Deny | RuleLimit::Fixed(Limit::Penalty(_) | Limit::Meter(_))
        );
        if !moved && written.rule.cost.largest() == Some(0) {
            let message = format!("every request under rule `{}` costs 0, so it never refuses", written.id());
            let fix = "a cost of 1 or more counts; to let some requests pass uncounted, give only these 0";
            found.push(found.warning(written.span_of("cost"), message, fix));
        }
    }
}

pub(super) fn rule_off(context: &Context<'_>, found: &mut Findings<'_>) {
    for written in context.rules.iter().filter(|written| written.rule.mode == Mode::Off) {
        let message = format!("rule `{}` is off: it neither refuses nor counts", written.id());
        let fix = "`mode: shadow` counts without refusing; take the rule out if it is not needed";
        found.push(found.note(written.span_of("mode"), message, fix));
    }
}

pub(super) fn rollout_nobody(context: &Context<'_>, found: &mut Findings<'_>) {
    for written in context.rules.iter().filter(|written| written.rule.mode == Mode::Enforce) {
        if written.rule.rollout.basis_points() == 0 {
            let message =
                format!("rule `{}` is enforced for 0% of its subjects, so for nobody", written.id());
            let fix = "raise the share step by step, like `rollout: 1%`, or say `mode: shadow`";
            found.push(found.note(written.span_of("rollout"), message, fix));
        }
    }
}

pub(super) fn never_matches(context: &Context<'_>, found: &mut Findings<'_>) {
    for written in context.live() {
        // Only a preset's conditions and those of its use can be about the same attribute, the preset's first.
        if let Some((_, own)) = context.work.contradiction(&written.claims, &written.claims) {
            let message = format!(
                "rule `{}` never matches: the preset has a condition on `{}` too, and no value meets both",
                written.id(),
                own.attribute,
            );
            let fix = "leave this condition out, or write the rule out with the condition that is meant";
            found.push(found.warning(own.span, message, fix));
        }
    }
}

pub(super) fn value_never_seen(context: &Context<'_>, found: &mut Findings<'_>) {
    let rules = context.live().flat_map(|written| {
        let overrides = written.overrides.iter().flat_map(|change| &change.claims);
        written.claims.iter().chain(overrides)
    });
    let exceptions = context.exceptions.iter().flat_map(|exception| &exception.claims);
    // A condition on a preset stands once and is part of several rules.
    let mut seen = HashSet::new();
    for claim in rules.chain(exceptions).filter(|claim| seen.insert(claim.span)) {
        match (claim.attribute, claim.test) {
            ("method", Test::OneOf(values)) => {
                if let Some(value) = values.iter().find(|value| value.bytes().any(|b| b.is_ascii_lowercase()))
                {
                    let message = format!("no request has the method `{value}`: methods are in capitals");
                    let fix = format!("write `{}`", value.to_ascii_uppercase());
                    found.push(found.warning(claim.span, message, fix));
                }
            }
            ("path", test) => path_never_seen(claim, test, found),
            _ => {}
        }
    }
}

fn path_never_seen(claim: &Claim<'_>, test: &Test, found: &mut Findings<'_>) {
    let without_slash = |text: &&str| !text.starts_with(['/', '*', '?']) && !text.is_empty();
    let wrong = match test {
        Test::OneOf(values) => values.iter().map(String::as_str).find(without_slash),
        Test::Prefix(text) | Test::Glob(text) => Some(text.as_str()).filter(without_slash),
        Test::Path(_) => {
            if let Some(path) = claim.path.filter(|path| path.contains(['?', '#'])) {
                let message = format!("no path has the form `{path}`: a query is not looked at");
                found.push(found.warning(claim.span, message, "leave out everything from the `?` or `#` on"));
            }
            None
        }
    };
    if let Some(text) = wrong {
        let message = format!("no request has a path like `{text}`: paths begin with `/`");
        found.push(found.warning(claim.span, message, format!("write `/{text}`")));
    }
}

pub(super) fn unreachable_rule(context: &Context<'_>, found: &mut Findings<'_>) {
    let deniers: Vec<&WrittenRule<'_>> = context.live().filter(|written| denies_everybody(written)).collect();
    for written in context.live() {
        let known: Vec<&Claim<'_>> = written.claims.iter().collect();
        let exception =
            context.exceptions.iter().find(|exception| context.work.follow(&known, &exception.claims));
        if let Some(exception) = exception {
            let message = format!(
                "rule `{}` is never asked: all its requests are on the `{}` list",
                written.id(),
                exception.list,
            );
            let fix = "narrow the entry of the list by a condition that the rule does not have, or take the \
                       rule out";
            let problem = found.warning(written.span(), message, fix);
            found.push(problem.also(exception.node.span, "this entry takes them"));
            continue;
        }
        if written.rule.limit == RuleLimit::Deny {
            continue;
        }
        if let Some(other) = deniers.iter().find(|other| context.work.follow(&known, &other.claims)) {
            let message = format!(
                "rule `{}` never decides: rule `{}` denies all its requests",
                written.id(),
                other.id()
            );
            let fix = "narrow the rule that denies, or take this one out";
            let problem = found.warning(written.span(), message, fix);
            found.push(problem.also(other.span_of("limit"), "denied here"));
        }
    }
}

fn denies_everybody(written: &WrittenRule<'_>) -> bool {
    let rule = written.rule;
    let finds_everybody = rule.per.parts.is_empty() || rule.missing == Missing::Refuse;
    rule.limit == RuleLimit::Deny
        && rule.mode == Mode::Enforce
        && rule.rollout == Rollout::ALL
        && finds_everybody
        && written.overrides.is_empty()
}

pub(super) fn shadowed_rule(context: &Context<'_>, found: &mut Findings<'_>) {
    for (at, loose) in context.live().enumerate() {
        let stricter = context.live().enumerate().find(|&(other_at, strict)| {
            other_at != at
                && context.work.spend(1).is_some()
                && shadows(context, loose, strict)
                // Of two that are equal, the later one is too many.
                && (other_at < at || !shadows(context, strict, loose))
        });
        let Some((_, strict)) = stricter else { continue };
        let message = format!(
            "while the store answers, rule `{}` never decides: rule `{}` counts the same subjects over all \
             its requests, and its limit is no looser",
            loose.id(),
            strict.id(),
        );
        let fix = "take it out, make its limit the stricter one, or narrow the other rule by a condition";
        let problem = found.warning(loose.span(), message, fix);
        found.push(problem.also(strict.span(), "this rule is reached first"));
    }
}

/// Whether whatever `loose` would refuse, `strict` has refused already.
///
/// Both count the same requests at the same cost, `strict` perhaps more of them, and all or nothing is charged. So
/// `loose` never holds more than `strict` does.
fn shadows(context: &Context<'_>, loose: &WrittenRule<'_>, strict: &WrittenRule<'_>) -> bool {
    let (rule, other) = (loose.rule, strict.rule);
    let enforced = match rule.mode {
        Mode::Enforce => other.rollout.basis_points() >= rule.rollout.basis_points(),
        // It only shows what it would refuse, and must not see what the other one lets pass.
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
        && context.work.follow(&loose.claims.iter().collect::<Vec<_>>(), &strict.claims)
}

fn same_cost(one: &Cost, other: &Cost) -> bool {
    match (one, other) {
        (Cost::FromRequest, Cost::FromRequest) => true,
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

/// Whether `loose` admits whatever `strict` admits, if it holds no more than that one. It says no where it cannot tell.
fn is_no_stricter(loose: &RuleLimit, strict: &RuleLimit) -> bool {
    match (loose, strict) {
        (
            RuleLimit::Calendar { allowance, grace, calendar },
            RuleLimit::Calendar { allowance: other, grace: other_grace, calendar: other_calendar },
        ) => calendar == other_calendar && allowance + grace >= other + other_grace,
        (RuleLimit::Fixed(loose), RuleLimit::Fixed(strict)) => match (loose, strict) {
            // A window inside another one never holds more.
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
