//! The explanation as JSON.

use serde_json::{Map, Value, json};
use tollgate::core::rules::rule_set::ListEntry;
use tollgate::core::rules::{Missing, Origin, Override, Planned, RuleLimit, RuleTrace};
use tollgate::core::{Item, Operation};

use super::unused_attributes::unused_attributes;
use super::{Explanation, describe, matches};

pub(crate) fn json(explanation: &Explanation<'_>) -> Value {
    let Explanation { rules, request, now, traces, .. } = explanation;
    let attributes: Map<String, Value> =
        request.attributes.iter().map(|(name, value)| (name.to_owned(), json!(value))).collect();
    let mut json = json!({
        "at": describe::instant(*now),
        "asked_cost": request.cost,
        "attributes": attributes,
        "hash_key": if explanation.example_key { "example" } else { "given" },
        "rules": traces.iter().enumerate().map(|(index, rule)| rule_json(explanation, index, rule)).collect::<Value>(),
        "answer": answer_json(explanation),
        "notes": unused_attributes(rules, request.attributes),
    });
    // What postpaid rules book beside the answer.
    let records = &explanation.records;
    if !records.items().is_empty() {
        json["records"] = records.items().iter().map(item_json).collect();
    }
    json
}

fn rule_json(explanation: &Explanation<'_>, rule_index: usize, trace: &RuleTrace<'_, '_>) -> Value {
    let Explanation { rules, request, rules_text, .. } = explanation;
    let attributes = request.attributes;
    let rule = trace.rule;
    let unmet = trace.unmet.iter().map(|condition| {
        json!({ "attribute": condition.attribute, "why": describe::unmet_condition(condition, attributes, rules_text) })
    });
    let overrides =
        rules.overrides_of(rule_index).iter().map(|change| override_json(explanation, trace, change));
    let limit_origin = trace.changed_by.map_or(&rule.origin, |change| &change.origin);
    json!({
        "id": rule.keyspace.rule(),
        "description": rule.description,
        "file": rule.origin.file,
        "line": rule.origin.line,
        "applies": matches(trace),
        "unmet": unmet.collect::<Value>(),
        "subject": subject_json(explanation, trace),
        "limit": limit_json(explanation, trace.limit, limit_origin),
        "overrides": overrides.collect::<Value>(),
        "cost": {
            "cost": trace.cost.cost,
            "failed": trace.cost.failed,
            "why": describe::cost_reason(trace, attributes),
        },
        "mode": describe::mode(rule.mode),
        "rollout": { "share": describe::percentage(rule.rollout), "included": trace.in_rollout },
        "blocking": matches(trace) && trace.blocking,
        "layers": describe::layers(rule, trace.limit).into_iter().map(|(name, text)| {
            json!({ "layer": name, "text": text })
        }).collect::<Value>(),
        "on_failure": describe::on_failure(rule.on_failure.for_request(attributes)),
    })
}

fn subject_json(explanation: &Explanation<'_>, trace: &RuleTrace<'_, '_>) -> Value {
    match &trace.subject {
        Ok(subjects) => {
            let parts = subjects.parts.iter().map(|(kind, value)| json!({ "kind": kind, "value": value }));
            let hash = explanation.hash(subjects).prefix();
            json!({ "found": true, "parts": parts.collect::<Value>(), "hash_prefix": hash })
        }
        Err(chain) => {
            let then = match trace.rule.missing {
                Missing::Skip => "skip",
                Missing::Refuse => "refuse",
            };
            json!({ "found": false, "none_of": chain, "missing": then })
        }
    }
}

fn limit_json(explanation: &Explanation<'_>, limit: &RuleLimit, origin: &Origin) -> Value {
    let limit_text = explanation.rules_text.limit(limit, origin);
    let period = explanation.period(limit);
    let period = period
        .map(|(start, end)| json!({ "start": describe::instant(start), "end": describe::instant(end) }));
    json!({
        "written": limit_text.text,
        "file": limit_text.origin.file,
        "line": limit_text.origin.line,
        "algorithm": limit.algorithm().map(|algorithm| algorithm.name()),
        "capacity": limit.capacity(),
        "period": period,
    })
}

fn override_json(explanation: &Explanation<'_>, trace: &RuleTrace<'_, '_>, change: &Override) -> Value {
    let Explanation { request, now, rules_text, .. } = explanation;
    let holds = change.holds(request.attributes, *now);
    let wins = trace.changed_by.is_some_and(|winner| std::ptr::eq(winner, change));
    let why = match trace.changed_by {
        _ if !holds => describe::override_mismatch(change, request.attributes, *now, rules_text),
        Some(winner) if !wins => {
            format!("another override wins because {}", describe::override_precedence(winner, change))
        }
        _ => describe::met_conditions(&change.conditions, request.attributes),
    };
    json!({
        "file": change.origin.file,
        "line": change.origin.line,
        "applies": holds,
        "wins": wins,
        "why": why,
        "until": change.until.map(describe::instant),
        "reason": change.reason,
        "limit": limit_json(explanation, &change.limit, &change.origin),
    })
}

fn answer_json(explanation: &Explanation<'_>) -> Value {
    match &explanation.planned {
        Ok(Planned::Denied(entry)) => list_entry_json("denied", entry),
        Ok(Planned::Bypassed(entry)) => list_entry_json("bypassed", entry),
        Ok(Planned::Refused { rule, missing, .. }) => {
            let why = if *missing { "missing-subject" } else { "limit-deny" };
            json!({ "kind": "refused", "rule": rule.keyspace.rule(), "why": why })
        }
        Ok(Planned::Unmatched { skipped }) => json!({ "kind": "unmatched", "skipped": skipped }),
        Ok(Planned::Plan { plan, skipped, cost_failed }) => json!({
            "kind": "plan",
            "items": plan.items().iter().map(item_json).collect::<Value>(),
            "skipped": skipped,
            "cost_failed": cost_failed,
        }),
        Err(error) => json!({ "kind": "error", "message": error.to_string() }),
    }
}

fn list_entry_json(kind: &str, entry: &ListEntry) -> Value {
    let ListEntry { reason, origin, .. } = entry;
    json!({ "kind": kind, "reason": reason, "file": origin.file, "line": origin.line })
}

fn item_json(item: &Item<'_>) -> Value {
    let (operation, cost) = match item.operation {
        Operation::Record { cost } => ("record", Some(cost)),
        _ => ("charge", item.operation.cost()),
    };
    json!({
        "rule": item.key.keyspace().rule(),
        "key": item.key.to_string(),
        "operation": operation,
        "cost": cost,
        "capacity": item.limit.capacity(),
        "blocking": item.blocking,
        "on_failure": describe::on_failure(item.on_failure),
    })
}
