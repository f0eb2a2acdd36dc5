//! The results as JSON, for programs and for the HTML report.

use serde_json::{Value, json};
use tollgate::core::Time;

use crate::cli::terminal::instant;
use crate::simulate::replay::Timeline;
use crate::simulate::requirement::Verdict;
use crate::simulate::results::{Results, SetResults, SubjectResult, Subjects};
use crate::simulate::suggest::{Proposal, Suggestion};

/// Returns the results as one object.
pub(in crate::simulate) fn json(results: &Results, verdicts: &[Verdict]) -> Value {
    let (unreadable, lines) = results.unreadable();
    let reasons = results.unreadable_reasons();
    json!({
        "requirements": verdicts.iter().map(|verdict| json!({
            "requirement": verdict.requirement,
            "passed": verdict.passed,
            "found": verdict.found,
        })).collect::<Vec<_>>(),
        "lines": lines,
        "unreadable": unreadable,
        "unreadable_reasons": reasons.into_iter().map(|(reason, count)| json!({ "reason": reason, "lines": count })).collect::<Vec<_>>(),
        "seconds": results.took.as_secs_f64(),
        "synthetic": results.synthetic,
        "new": set(&results.new),
        "old": results.old.as_ref().map(set),
        "newly_refused": subjects(&results.newly_refused),
        "newly_allowed": subjects(&results.newly_allowed),
        "top": results.top.iter().map(subject).collect::<Vec<_>>(),
        "suggestions": results.suggestions.as_ref().map(|all| all.iter().map(suggestion).collect::<Vec<_>>()),
        "not_simulated": results.not_simulated.iter().map(|left_out| json!({
            "rule": left_out.rule,
            "reason": left_out.reason,
        })).collect::<Vec<_>>(),
        "not_modelled": ["clients that retry after a refusal"],
        "inputs": results.inputs.iter().map(|log| json!({
            "name": log.name,
            "format": format!("{:?}", log.format).to_lowercase(),
            "lines": log.counts.lines,
            "requests": log.counts.requests,
            "other": log.counts.other,
            "unreadable": log.counts.unreadable,
            "first_unreadable": log.counts.first_unreadable.map(|(line, reason)| json!({ "line": line, "reason": reason })),
            "truncated": log.counts.truncated,
            "durations": log.has_durations,
            "capture": log.capture.as_ref().map(|capture| json!({
                "starts": capture.starts,
                "dropped": capture.dropped,
                "refused_by_server": capture.refused,
            })),
        })).collect::<Vec<_>>(),
    })
}

fn set(results: &SetResults) -> Value {
    json!({
        "rules_file": results.name,
        "requests": results.requests,
        "refused": results.refused,
        "unmatched": results.unmatched,
        "denied": results.denied,
        "bypassed": results.bypassed,
        "undecided": results.undecided.iter().map(|(error, count)| json!({ "error": error, "requests": count })).collect::<Vec<_>>(),
        "first": results.span.map(|(first, _)| instant(first)),
        "last": results.span.map(|(_, last)| instant(last)),
        "timeline": timeline(&results.timeline),
        "rules": results.rules.iter().map(|rule| json!({
            "id": rule.id,
            "algorithm": rule.algorithm.map(|algorithm| algorithm.name()),
            "checks": rule.checks,
            "refused": rule.refused,
            "shadow_refused": rule.shadow_refused,
            "subjects": rule.subjects,
            "subjects_hit": rule.subjects_hit,
            "peak_subjects": rule.peak_subjects,
            "timeline": timeline(&rule.timeline),
        })).collect::<Vec<_>>(),
    })
}

fn timeline(timeline: &Timeline) -> Value {
    let start = timeline.slots().next().map(|(at, _)| at).map(|at: Time| at.us() / 1_000_000);
    json!({
        "start": start,
        "slot_seconds": timeline.slot_seconds(),
        "checks": timeline.slots().map(|(_, slot)| slot.checks).collect::<Vec<_>>(),
        "refused": timeline.slots().map(|(_, slot)| slot.refused).collect::<Vec<_>>(),
    })
}

fn subjects(subjects: &Subjects) -> Value {
    json!({ "number": subjects.len(), "listed": subjects.listed.iter().map(subject).collect::<Vec<_>>() })
}

fn suggestion(suggestion: &Suggestion) -> Value {
    let mut value = json!({ "rule": suggestion.rule, "percent_now": suggestion.percent_now });
    match &suggestion.proposal {
        Proposal::Within => value["within"] = true.into(),
        Proposal::Impossible(reason) => value["impossible"] = (*reason).into(),
        Proposal::Change { line, before, after, percent } => {
            value["line"] = (*line).into();
            value["before"] = before.as_str().into();
            value["after"] = after.as_str().into();
            value["percent"] = (*percent).into();
        }
    }
    value
}

fn subject(subject: &SubjectResult) -> Value {
    json!({
        "subject": subject.subject,
        "values": subject.values,
        "rule": subject.rule,
        "checks": subject.checks,
        "refused": subject.refused,
    })
}
