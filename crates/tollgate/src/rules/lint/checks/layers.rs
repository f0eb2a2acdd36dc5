//! Lints about the layers before Redis and about shards: what each promises, and where one has no effect.

use tollgate_core::limit::share::Share;
use tollgate_core::rules::{Mode, Rule};
use tollgate_core::{Algorithm, Limit, OnFailure, Time};

use crate::rules::lint::Findings;
use crate::rules::lint::context::Context;
use crate::rules::shards::smallest_part;

/// States class and bound of a prefilter.
pub(in crate::rules::lint) fn attempts_count(context: &Context<'_>, found: &mut Findings<'_>) {
    for written in context.live() {
        let percent = written.rule.layers.prefilter_percent;
        let limit = written.rule.limit.at(Time::ZERO);
        let Some(attempts) = limit.and_then(|limit| limit.share(Share::scale(percent)?)) else { continue };
        let message = format!(
            "rule `{}` is conservative: each server refuses attempts above {} without asking Redis, also attempts that \
             another rule refused",
            written.id(),
            attempts.reported_limit(),
        );
        let fix = "a prefilter is for rules about addresses and bots; remove it from rules about customers";
        found.push(found.note(written.span_of("prefilter"), message, fix));
    }
}

/// States class and bound of a sharded rule.
pub(in crate::rules::lint) fn uneven_shards(context: &Context<'_>, found: &mut Findings<'_>) {
    for written in context.live() {
        let (Some(shards), Some(limit)) = (written.rule.shards, written.rule.limit.at(Time::ZERO)) else {
            continue;
        };
        let (count, smallest) = (shards.count(), smallest_part(&limit, shards));
        let message = format!(
            "rule `{}` is conservative: it never admits more than its limit, but a request that finds one of {count} parts \
             used up is refused although up to {} of {} units are left; a cost above {smallest} is an error",
            written.id(),
            limit.capacity().saturating_sub(smallest),
            limit.capacity(),
        );
        let fix = "`slices` relieve most hot keys more, and refuse early near the limit only";
        found.push(found.note(written.span_of("shards"), message, fix));
    }
}

/// Reports a local share of a part that is less than a unit.
pub(in crate::rules::lint) fn local_shards(context: &Context<'_>, found: &mut Findings<'_>) {
    for written in context.live() {
        let (Some(shards), Some(limit)) = (written.rule.shards, written.rule.limit.at(Time::ZERO)) else {
            continue;
        };
        let policy = &written.rule.on_failure;
        let mut policies =
            std::iter::once(&policy.default).chain(policy.by.iter().flat_map(|(_, by)| by.values()));
        let smallest = smallest_part(&limit, shards);
        let is_too_small = |policy: &OnFailure| match policy {
            OnFailure::Local { percent: Some(percent) } => {
                Share::percent(*percent).is_some_and(|share| share.of(smallest) == 0)
            }
            // Two servers or more.
            OnFailure::Local { percent: None } => smallest < 2,
            _ => false,
        };
        if policies.any(is_too_small) {
            let message = format!(
                "the local share of rule `{}` is less than a unit of a part with {smallest} units, and is rounded up to 1: \
                 while Redis does not answer, each server admits up to {} units",
                written.id(),
                shards.count(),
            );
            let fix = "use fewer shards, a larger share, or `cap N/period`, which all shards share";
            found.push(found.warning(written.span_of("on_failure"), message, fix));
        }
    }
}

/// Reports a layer of a rule for which no layer ever answers.
pub(in crate::rules::lint) fn without_effect(context: &Context<'_>, found: &mut Findings<'_>) {
    for written in context.live() {
        let rule = written.rule;
        let layers = [
            ("prefilter", rule.layers.prefilter_percent > 0, why_no_prefilter(rule)),
            ("refusal_memory", !rule.layers.refusal_memory, why_no_memory(rule)),
        ];
        for (key, is_set, why) in layers {
            if let (true, Some(why)) = (is_set, why) {
                let message = format!("`{key}` of rule `{}` has no effect: {why}", written.id());
                let fix = format!("remove `{key}`");
                found.push(found.warning(written.span_of(key), message, fix));
            }
        }
    }
}

fn why_no_prefilter(rule: &Rule) -> Option<&'static str> {
    let is_indivisible = |limit: Limit| Share::scale(100).is_none_or(|share| limit.share(share).is_none());
    if rule.limit.at(Time::ZERO).is_some_and(is_indivisible) {
        return Some("attempts cannot be counted against a share of leases, of a queue or of a penalty");
    }
    why_no_layer(rule)
}

fn why_no_memory(rule: &Rule) -> Option<&'static str> {
    match rule.limit.algorithm() {
        Some(Algorithm::Concurrency) => {
            Some("leases end at any time, so their refusals are never remembered")
        }
        Some(Algorithm::Penalty) => {
            Some("a penalty counts every attempt, so its refusals are never remembered")
        }
        _ => why_no_layer(rule),
    }
}

fn why_no_layer(rule: &Rule) -> Option<&'static str> {
    if rule.mode == Mode::Shadow {
        return Some("a shadow rule asks Redis each time");
    }
    rule.postpaid.then_some("a postpaid rule asks Redis each time")
}
