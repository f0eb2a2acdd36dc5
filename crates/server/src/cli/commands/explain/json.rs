//! The explanation for programs.

use serde_json::{Map, Value, json};
use tollgate::core::Item;
use tollgate::core::rules::rule_set::ListEntry;
use tollgate::core::rules::{Missing, Origin, Override, Planned, RuleLimit, RuleTrace};

use super::unused::unused;
use super::{Explanation, matches, words};

pub(super) fn json(explanation: &Explanation<'_>) -> Value {
    let Explanation { rules, request, now, explained, .. } = explanation;
    let attributes: Map<String, Value> =
        request.attributes.iter().map(|(name, value)| (name.to_owned(), json!(value))).collect();
    json!({
        "at": words::instant(*now),
        "asked_cost": request.cost,
        "attributes": attributes,
        "hash_key": if explanation.example_key { "example" } else { "given" },
        "rules": explained.iter().enumerate().map(|(place, rule)| of_rule(explanation, place, rule)).collect::<Value>(),
        "answer": answer(explanation),
        "notes": unused(rules, request.attributes),
    })
}

fn of_rule(explanation: &Explanation<'_>, place: usize, explained: &RuleTrace<'_, '_>) -> Value {
    let Explanation { rules, request, written, .. } = explanation;
    let attributes = request.attributes;
    let rule = explained.rule;
    let unmet = explained.unmet.iter().map(|condition| {
        json!({ "attribute": condition.attribute, "why": words::unmet(condition, attributes, written) })
    });
    let overrides =
        rules.overrides_of(place).iter().map(|change| of_override(explanation, explained, change));
    let limit_origin = explained.changed_by.map_or(&rule.origin, |change| &change.origin);
    json!({
        "id": rule.keyspace.rule(),
        "description": rule.description,
        "file": rule.origin.file,
        "line": rule.origin.line,
        "applies": matches(explained),
        "unmet": unmet.collect::<Value>(),
        "subject": subject(explanation, explained),
        "limit": limit(explanation, explained.limit, limit_origin),
        "overrides": overrides.collect::<Value>(),
        "cost": {
            "cost": explained.cost.cost,
            "failed": explained.cost.failed,
            "why": words::why_cost(&rule.cost, explained.cost, attributes),
        },
        "mode": words::mode(rule.mode),
        "rollout": { "share": words::share(rule.rollout), "included": explained.in_rollout },
        "blocking": matches(explained) && explained.blocking,
        "on_failure": words::on_failure(rule.on_failure.of(attributes)),
    })
}

fn subject(explanation: &Explanation<'_>, explained: &RuleTrace<'_, '_>) -> Value {
    match &explained.subject {
        Ok(subjects) => {
            let parts = subjects.parts.iter().map(|(kind, value)| json!({ "kind": kind, "value": value }));
            let hash = format!("{:?}", explanation.hash(subjects));
            json!({ "found": true, "parts": parts.collect::<Value>(), "hash_prefix": hash })
        }
        Err(chain) => {
            let then = match explained.rule.missing {
                Missing::Skip => "skip",
                Missing::Refuse => "refuse",
            };
            json!({ "found": false, "none_of": chain, "missing": then })
        }
    }
}

fn limit(explanation: &Explanation<'_>, limit: &RuleLimit, origin: &Origin) -> Value {
    let written = explanation.written.limit(limit, origin);
    let period = explanation.period(limit);
    let period =
        period.map(|(start, end)| json!({ "start": words::instant(start), "end": words::instant(end) }));
    json!({
        "written": written.text,
        "file": written.origin.file,
        "line": written.origin.line,
        "algorithm": limit.algorithm().map(|algorithm| algorithm.name()),
        "capacity": limit.capacity(),
        "period": period,
    })
}

fn of_override(explanation: &Explanation<'_>, explained: &RuleTrace<'_, '_>, change: &Override) -> Value {
    let Explanation { request, now, written, .. } = explanation;
    let holds = change.holds(request.attributes, *now);
    let wins = explained.changed_by.is_some_and(|winner| std::ptr::eq(winner, change));
    let why = match explained.changed_by {
        _ if !holds => words::why_not(change, request.attributes, *now, written),
        Some(winner) if !wins => format!("another applies: {}", words::why_beats(winner, change)),
        _ => words::met(&change.conditions, request.attributes),
    };
    json!({
        "file": change.origin.file,
        "line": change.origin.line,
        "applies": holds,
        "wins": wins,
        "why": why,
        "until": change.until.map(words::instant),
        "reason": change.reason,
        "limit": limit(explanation, &change.limit, &change.origin),
    })
}

fn answer(explanation: &Explanation<'_>) -> Value {
    match &explanation.planned {
        Ok(Planned::Denied(exception)) => excepted("denied", exception),
        Ok(Planned::Bypassed(exception)) => excepted("bypassed", exception),
        Ok(Planned::Refused { rule, missing, .. }) => {
            let why = if *missing { "missing-subject" } else { "limit-deny" };
            json!({ "kind": "refused", "rule": rule.keyspace.rule(), "why": why })
        }
        Ok(Planned::Plan { plan, skipped, cost_failed }) => json!({
            "kind": "plan",
            "items": plan.items().iter().map(of_item).collect::<Value>(),
            "skipped": skipped,
            "cost_failed": cost_failed,
        }),
        Err(error) => json!({ "kind": "error", "message": error.to_string() }),
    }
}

fn excepted(kind: &str, exception: &ListEntry) -> Value {
    let ListEntry { reason, origin, .. } = exception;
    json!({ "kind": kind, "reason": reason, "file": origin.file, "line": origin.line })
}

fn of_item(item: &Item<'_>) -> Value {
    json!({
        "rule": item.key.keyspace().rule(),
        "key": item.key.to_string(),
        "operation": "charge",
        "cost": item.operation.cost(),
        "capacity": item.limit.capacity(),
        "blocking": item.blocking,
        "on_failure": words::on_failure(item.on_failure),
    })
}
