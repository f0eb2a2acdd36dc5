//! The explanation for people: a block for each rule that applies, a line for each that does not, the answer last.

use tollgate::core::rules::rule_set::ListEntry;
use tollgate::core::rules::{Missing, Mode, Planned, Rollout, Rule, RuleLimit, RuleTrace};
use tollgate::core::{EXACT_MAX, Plan};

use super::unused::unused;
use super::{Explanation, matches, words};
use crate::cli::terminal::{DIM, GREEN, RED, STRONG, YELLOW, typed};

/// Wide enough for the longest label.
const LABEL: usize = 10;

pub(super) fn text(explanation: &Explanation<'_>) -> String {
    let Explanation { rules, request, now, explained, .. } = explanation;
    let mut out = format!("{DIM}at {}, asking for {}{DIM:#}\n", words::instant(*now), request.cost);
    for (place, rule) in explained.iter().enumerate().filter(|(_, rule)| matches(rule)) {
        out += &block(explanation, place, rule);
    }
    let others: Vec<_> = explained.iter().filter(|rule| !matches(rule)).collect();
    if !others.is_empty() {
        out += &format!("\n{STRONG}Rules that do not apply{STRONG:#}\n");
    }
    let width = others.iter().map(|other| other.rule.keyspace.rule().len()).max().unwrap_or(0);
    for other in others {
        out += &format!("  {:width$}  {}\n", other.rule.keyspace.rule(), why_not(explanation, other));
    }
    out += &format!("\n{}", answer(explanation));
    let mut notes = unused(rules, request.attributes);
    let hashed = explained.iter().any(|rule| matches(rule) && rule.subject.is_ok());
    if explanation.example_key && hashed {
        notes.push(
            "hashes and rollouts are those of an example key; --hash-key-file takes that of your servers"
                .into(),
        );
    }
    if !notes.is_empty() {
        out.push('\n');
    }
    for note in notes {
        out += &format!("{YELLOW}note:{YELLOW:#} {note}\n");
    }
    out
}

fn why_not(explanation: &Explanation<'_>, explained: &RuleTrace<'_, '_>) -> String {
    let attributes = explanation.request.attributes;
    let unmet =
        explained.unmet.iter().map(|condition| words::unmet(condition, attributes, &explanation.written));
    let off = (explained.rule.mode == Mode::Off).then(|| "its mode is off".to_owned());
    off.into_iter().chain(unmet).collect::<Vec<_>>().join("; ")
}

fn block(explanation: &Explanation<'_>, place: usize, explained: &RuleTrace<'_, '_>) -> String {
    let rule = explained.rule;
    let attributes = explanation.request.attributes;
    let mut out =
        format!("\n{STRONG}{}{STRONG:#}  {DIM}{}{DIM:#}\n", rule.keyspace.rule(), words::place(&rule.origin));
    line(&mut out, "applies to", &words::met(&rule.conditions, attributes));
    line(&mut out, "counts", &counted(explanation, explained));
    limit(&mut out, explanation, place, explained);
    let cost = words::why_cost(&rule.cost, explained.cost, attributes);
    line(&mut out, "cost", &format!("{}, {cost}", explained.cost.cost));
    line(&mut out, "mode", &mode(explained));
    line(&mut out, "on failure", &words::on_failure(rule.on_failure.of(attributes)));
    out
}

fn line(out: &mut String, label: &str, text: &str) {
    *out += &format!("  {DIM}{label:LABEL$}{DIM:#}  {text}\n");
}

fn counted(explanation: &Explanation<'_>, explained: &RuleTrace<'_, '_>) -> String {
    match &explained.subject {
        Ok(subjects) => {
            let hash = explanation.hash(subjects);
            let parts: Vec<String> =
                subjects.parts.iter().map(|(kind, value)| format!("{kind} {}", typed(value))).collect();
            match parts.as_slice() {
                [] => format!("everybody together ({hash:?})"),
                parts => format!("{} ({hash:?})", parts.join(", ")),
            }
        }
        Err(chain) => {
            let then = match explained.rule.missing {
                Missing::Skip => "so the rule is skipped",
                Missing::Refuse if explained.rule.mode == Mode::Enforce => "so the request is refused",
                Missing::Refuse => "so the rule is skipped; it would refuse if it were enforced",
            };
            let absent = match chain {
                [only] => format!("{only} is absent"),
                several => format!("none of {} is there", several.join(", ")),
            };
            format!("{YELLOW}nobody{YELLOW:#}: {absent}, {then}")
        }
    }
}

fn limit(out: &mut String, explanation: &Explanation<'_>, place: usize, explained: &RuleTrace<'_, '_>) {
    let Explanation { rules, request, now, written, .. } = explanation;
    let rule = explained.rule;
    let own = written.limit(&rule.limit, &rule.origin);
    match explained.changed_by {
        None => line(out, "limit", &format!("{} {DIM}({}){DIM:#}", own.text, words::place(&own.origin))),
        Some(change) => {
            let wins = written.limit(&change.limit, &change.origin);
            line(out, "limit", &format!("{} {DIM}({}){DIM:#}", wins.text, words::place(&wins.origin)));
            let until =
                change.until.map(|until| format!(", until {}", words::instant(until))).unwrap_or_default();
            let reason = words::reason(&change.reason);
            let when = words::met(&change.conditions, request.attributes);
            line(out, "", &format!("an override for {when}{until}{reason}"));
            line(out, "", &format!("in place of {} {DIM}({}){DIM:#}", own.text, words::place(&own.origin)));
        }
    }
    if let (Some((start, end)), RuleLimit::Calendar { calendar, .. }) =
        (explanation.period(explained.limit), explained.limit)
    {
        let [start, end] = [start, end].map(|time| words::instant_in(time, calendar.zone_name()));
        line(out, "", &format!("this period: {start} to {end}"));
    }
    for other in rules.overrides_of(place) {
        let at = words::place(&other.origin);
        match explained.changed_by {
            Some(winner) if std::ptr::eq(winner, other) => (),
            Some(winner) if other.holds(request.attributes, *now) => {
                line(
                    out,
                    "",
                    &format!("beats the override at {at}, because {}", words::why_beats(winner, other)),
                );
            }
            _ => {
                let why = words::why_not(other, request.attributes, *now, written);
                line(out, "", &format!("the override at {at} does not apply: {why}"));
            }
        }
    }
}

fn mode(explained: &RuleTrace<'_, '_>) -> String {
    let Rule { mode, rollout, .. } = explained.rule;
    let name = words::mode(*mode);
    if *rollout == Rollout::ALL || explained.subject.is_err() {
        return name.to_owned();
    }
    let share = words::share(*rollout);
    match (explained.in_rollout, mode) {
        (true, _) => format!("{name}; in the rollout to {share}"),
        (false, Mode::Enforce) => format!("{name}; not in the rollout to {share}, so it is a shadow"),
        (false, _) => format!("{name}; not in the rollout to {share}"),
    }
}

fn answer(explanation: &Explanation<'_>) -> String {
    match &explanation.planned {
        Ok(Planned::Denied(exception)) => {
            format!("{RED}Refused{RED:#} by the deny list. {}", excepted(exception, explanation))
        }
        Ok(Planned::Bypassed(exception)) => {
            format!("{GREEN}Allowed{GREEN:#} by the bypass list. {}", excepted(exception, explanation))
        }
        Ok(Planned::Refused { rule, missing, .. }) => {
            let why = if *missing {
                "nobody to count is there, and it says `missing: refuse`"
            } else {
                "its limit is `deny`"
            };
            format!("{RED}Refused{RED:#} by {}: {why}. No store is asked.\n", rule.keyspace.rule())
        }
        Ok(Planned::Plan { plan, skipped, .. }) if plan.items().is_empty() => {
            let why = if *skipped == 0 { "no rule applies" } else { "every rule that applies is skipped" };
            format!("{GREEN}Allowed{GREEN:#}: {why}. No store is asked.\n")
        }
        Ok(Planned::Plan { plan, .. }) => items(plan),
        Err(error) => format!("{RED}An error{RED:#}: {error}.\n"),
    }
}

fn excepted(exception: &ListEntry, explanation: &Explanation<'_>) -> String {
    let when = words::met(&exception.conditions, explanation.request.attributes);
    let reason = words::reason(&exception.reason);
    format!(
        "No rule is looked at, no store is asked.\n  {when}{reason} {DIM}({}){DIM:#}\n",
        words::place(&exception.origin)
    )
}

fn items(plan: &Plan<'_>) -> String {
    let width = plan.items().iter().map(|item| item.key.keyspace().rule().len()).max().unwrap_or(0);
    let mut out = format!("{STRONG}The store is asked, in one step, all or nothing{STRONG:#}\n");
    for item in plan.items() {
        let blocking = if item.blocking { "may refuse" } else { "a shadow: counted, never refuses" };
        let of = match item.limit.capacity() {
            // Limits that have no capacity of their own.
            EXACT_MAX => String::new(),
            capacity => format!(" of {capacity}"),
        };
        let (rule, cost) = (item.key.keyspace().rule(), item.operation.cost().unwrap_or(0));
        out += &format!("  {rule:width$}  charge {cost}{of}, {blocking}\n");
        out += &format!("  {:width$}  {DIM}{}{DIM:#}\n", "", item.key);
    }
    out
}
