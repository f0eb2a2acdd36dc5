//! The explanation as text: a block for each rule that matches, a line for each other rule, and the answer.

use tollgate::core::rules::rule_set::ListEntry;
use tollgate::core::rules::{Missing, Mode, Planned, Rollout, Rule, RuleLimit, RuleTrace};
use tollgate::core::{EXACT_MAX, Operation, Plan};

use super::unused_attributes::unused_attributes;
use super::{Explanation, describe, matches};
use crate::cli::terminal::{DIM, GREEN, RED, STRONG, YELLOW, quoted_unless_plain};

/// The width of the longest label.
const LABEL: usize = 10;

pub(crate) fn text(explanation: &Explanation<'_>) -> String {
    let Explanation { rules, request, now, traces, .. } = explanation;
    let mut out = format!("{DIM}at {}, cost {}{DIM:#}\n", describe::instant(*now), request.cost);
    for (index, rule) in traces.iter().enumerate().filter(|(_, rule)| matches(rule)) {
        out += &rule_block(explanation, index, rule);
    }
    let others: Vec<_> = traces.iter().filter(|rule| !matches(rule)).collect();
    if !others.is_empty() {
        out += &format!("\n{STRONG}Rules that do not match{STRONG:#}\n");
    }
    let width = others.iter().map(|other| other.rule.keyspace.rule().len()).max().unwrap_or(0);
    for other in others {
        out += &format!("  {:width$}  {}\n", other.rule.keyspace.rule(), mismatch(explanation, other));
    }
    out += &format!("\n{}", answer(explanation));
    let mut notes = unused_attributes(rules, request.attributes);
    let hashed = traces.iter().any(|rule| matches(rule) && rule.subject.is_ok());
    if explanation.example_key && hashed {
        notes.push(
            "hashes and rollouts use an example key; pass the hash key of your servers with --hash-key-file"
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

fn mismatch(explanation: &Explanation<'_>, trace: &RuleTrace<'_, '_>) -> String {
    let attributes = explanation.request.attributes;
    let unmet = trace
        .unmet
        .iter()
        .map(|condition| describe::unmet_condition(condition, attributes, explanation.rules_text));
    let off = (trace.rule.mode == Mode::Off).then(|| "its mode is off".to_owned());
    off.into_iter().chain(unmet).collect::<Vec<_>>().join("; ")
}

fn rule_block(explanation: &Explanation<'_>, rule_index: usize, trace: &RuleTrace<'_, '_>) -> String {
    let rule = trace.rule;
    let attributes = explanation.request.attributes;
    let mut out = format!(
        "\n{STRONG}{}{STRONG:#}  {DIM}{}{DIM:#}\n",
        rule.keyspace.rule(),
        describe::location(&rule.origin)
    );
    line(&mut out, "matches", &describe::met_conditions(&rule.conditions, attributes));
    line(&mut out, "subject", &subject(explanation, trace));
    limit(&mut out, explanation, rule_index, trace);
    let cost = describe::cost_reason(trace, attributes);
    line(&mut out, "cost", &format!("{}, {cost}", trace.cost.cost));
    line(&mut out, "mode", &mode(trace));
    for (layer, what) in describe::layers(rule, trace.limit) {
        line(&mut out, layer, &what);
    }
    line(&mut out, "on failure", &describe::on_failure(rule.on_failure.for_request(attributes)));
    out
}

fn line(out: &mut String, label: &str, text: &str) {
    *out += &format!("  {DIM}{label:LABEL$}{DIM:#}  {text}\n");
}

fn subject(explanation: &Explanation<'_>, trace: &RuleTrace<'_, '_>) -> String {
    match &trace.subject {
        Ok(subjects) => {
            let hash = explanation.hash(subjects).prefix();
            let parts: Vec<String> = subjects
                .parts
                .iter()
                .map(|(kind, value)| format!("{kind} {}", quoted_unless_plain(value)))
                .collect();
            match parts.as_slice() {
                [] => format!("all requests together ({hash})"),
                parts => format!("{} ({hash})", parts.join(", ")),
            }
        }
        Err(chain) => {
            let consequence = match trace.rule.missing {
                Missing::Skip => "the rule is skipped",
                Missing::Refuse if trace.rule.mode == Mode::Enforce => "the request is refused",
                Missing::Refuse => "the rule is skipped; in the mode enforce it would refuse",
            };
            let absent = match chain {
                [only] => format!("{only} is absent"),
                several => format!("{} are absent", several.join(", ")),
            };
            format!("{YELLOW}missing{YELLOW:#}: {absent}; {consequence}")
        }
    }
}

fn limit(out: &mut String, explanation: &Explanation<'_>, rule_index: usize, trace: &RuleTrace<'_, '_>) {
    let Explanation { rules, request, now, rules_text, .. } = explanation;
    let rule = trace.rule;
    let own = rules_text.limit(&rule.limit, &rule.origin);
    match trace.changed_by {
        None => {
            line(out, "limit", &format!("{} {DIM}({}){DIM:#}", own.text, describe::location(&own.origin)))
        }
        Some(change) => {
            let winner = rules_text.limit(&change.limit, &change.origin);
            line(
                out,
                "limit",
                &format!("{} {DIM}({}){DIM:#}", winner.text, describe::location(&winner.origin)),
            );
            let until =
                change.until.map(|until| format!(", until {}", describe::instant(until))).unwrap_or_default();
            let reason = describe::reason_suffix(&change.reason);
            let when = describe::met_conditions(&change.conditions, request.attributes);
            line(out, "", &format!("from an override: {when}{until}{reason}"));
            line(
                out,
                "",
                &format!("instead of {} {DIM}({}){DIM:#}", own.text, describe::location(&own.origin)),
            );
        }
    }
    if let (Some((start, end)), RuleLimit::Calendar { calendar, .. }) =
        (explanation.period(trace.limit), trace.limit)
    {
        let [start, end] = [start, end].map(|time| describe::instant_in(time, calendar.zone_name()));
        line(out, "", &format!("this period: {start} to {end}"));
    }
    for other in rules.overrides_of(rule_index) {
        let at = describe::location(&other.origin);
        match trace.changed_by {
            Some(winner) if std::ptr::eq(winner, other) => (),
            Some(winner) if other.holds(request.attributes, *now) => {
                line(
                    out,
                    "",
                    &format!(
                        "wins over the override at {at} because {}",
                        describe::override_precedence(winner, other)
                    ),
                );
            }
            _ => {
                let why = describe::override_mismatch(other, request.attributes, *now, rules_text);
                line(out, "", &format!("the override at {at} does not match: {why}"));
            }
        }
    }
}

fn mode(trace: &RuleTrace<'_, '_>) -> String {
    let Rule { mode, rollout, .. } = trace.rule;
    let name = describe::mode(*mode);
    if *rollout == Rollout::ALL || trace.subject.is_err() {
        return name.to_owned();
    }
    let share = describe::percentage(*rollout);
    match (trace.in_rollout, mode) {
        (true, _) => format!("{name}; in the rollout to {share}"),
        (false, Mode::Enforce) => {
            format!("{name}; not in the rollout to {share}, so the rule acts as a shadow")
        }
        (false, _) => format!("{name}; not in the rollout to {share}"),
    }
}

fn answer(explanation: &Explanation<'_>) -> String {
    let records = &explanation.records;
    let mut out = answer_of_check(explanation, records);
    if !records.items().is_empty() {
        out += &format!("{STRONG}Whatever it decides, postpaid rules book{STRONG:#}\n{}", items(records));
    }
    out
}

fn answer_of_check(explanation: &Explanation<'_>, records: &Plan<'_>) -> String {
    match &explanation.planned {
        Ok(Planned::Denied(entry)) => {
            format!("{RED}Denied{RED:#} by the deny list. {}", list_entry(entry, explanation))
        }
        Ok(Planned::Bypassed(entry)) => {
            format!("{GREEN}Allowed{GREEN:#} by the bypass list. {}", list_entry(entry, explanation))
        }
        Ok(Planned::Refused { rule, missing, .. }) => {
            let why = if *missing {
                "its subject is missing, and it has `missing: refuse`"
            } else {
                "its limit is `deny`"
            };
            format!("{RED}Refused{RED:#} by {}: {why}. The store is not used.\n", rule.keyspace.rule())
        }
        Ok(Planned::Unmatched { skipped }) => {
            let why = uncounted(*skipped);
            format!(
                "{RED}Refused{RED:#}: {why}, and the file has `unmatched: refuse`. The store is not used.\n"
            )
        }
        Ok(Planned::Plan { plan, skipped, .. }) if plan.items().is_empty() && records.items().is_empty() => {
            format!("{GREEN}Allowed{GREEN:#}: {}. The store is not used.\n", uncounted(*skipped))
        }
        Ok(Planned::Plan { plan, .. }) if plan.items().is_empty() => {
            format!("{GREEN}Allowed{GREEN:#}: no other rule counts the request.\n")
        }
        Ok(Planned::Plan { plan, .. }) => {
            format!("{STRONG}The store applies this Plan in one atomic step{STRONG:#}\n{}", items(plan))
        }
        Err(error) => format!("{RED}Error{RED:#}: {error}.\n"),
    }
}

/// Why no rule counts the request.
const fn uncounted(skipped: u32) -> &'static str {
    if skipped == 0 { "no rule matches" } else { "every rule that matches is skipped" }
}

fn list_entry(entry: &ListEntry, explanation: &Explanation<'_>) -> String {
    let when = describe::met_conditions(&entry.conditions, explanation.request.attributes);
    let reason = describe::reason_suffix(&entry.reason);
    format!(
        "No rule is checked, and the store is not used.\n  {when}{reason} {DIM}({}){DIM:#}\n",
        describe::location(&entry.origin)
    )
}

fn items(plan: &Plan<'_>) -> String {
    let width = plan.items().iter().map(|item| item.key.keyspace().rule().len()).max().unwrap_or(0);
    let mut out = String::new();
    for item in plan.items() {
        let blocking = if item.blocking { "blocking" } else { "shadow: counts, never refuses" };
        let of = match item.limit.capacity() {
            // The limit has no capacity.
            EXACT_MAX => String::new(),
            capacity => format!(" of {capacity}"),
        };
        let rule = item.key.keyspace().rule();
        out += &match item.operation {
            Operation::Record { cost } => format!("  {rule:width$}  record {cost}{of}\n"),
            _ => format!("  {rule:width$}  charge {}{of}, {blocking}\n", item.operation.cost().unwrap_or(0)),
        };
        out += &format!("  {:width$}  {DIM}{}{DIM:#}\n", "", item.key);
    }
    out
}
