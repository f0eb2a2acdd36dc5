//! Describes conditions, costs and overrides in words.

use tollgate::core::plan::slice::SliceHold;
use tollgate::core::request::path::PATH;
use tollgate::core::rules::cost::ResolvedCost;
use tollgate::core::rules::{
    Condition, Cost, Mode, Origin, Override, Rollout, RuleLimit, RuleTrace, SubjectSelector, Test,
};
use tollgate::core::{Attributes, Limit, OnFailure, Time};

use super::rules_text::RulesText;
pub(crate) use crate::cli::terminal::instant;
use crate::cli::terminal::{quoted_unless_plain, timestamp};
use crate::text::escape_control;

/// Describes conditions: `action is search, path has the form /v1/items/{id}`.
pub(crate) fn conditions(conditions: &[Condition], rules_text: &RulesText) -> String {
    if conditions.is_empty() {
        return "every request".to_owned();
    }
    let each = conditions.iter().map(|Condition { attribute, test }| match test {
        Test::OneOf(values) => format!("{attribute} is {}", any_of(values)),
        Test::Prefix(prefix) => format!("{attribute} starts with {}", quoted_unless_plain(prefix)),
        Test::Glob(pattern) => format!("{attribute} has the form {}", quoted_unless_plain(pattern)),
        Test::Address(blocks) => {
            let blocks: Vec<String> = blocks.iter().map(ToString::to_string).collect();
            format!("{attribute} is in {}", any_of(&blocks))
        }
        Test::Path(pattern) => {
            let form = rules_text.path(pattern).map_or("of its rule".into(), quoted_unless_plain);
            format!("{attribute} has the form {form}")
        }
        Test::Except(_) | Test::Hashed(_) => format!("{attribute} must {}", wanted(test, rules_text)),
    });
    each.collect::<Vec<_>>().join(", ")
}

/// Describes what slices do: a server with many checks of the subject books a part and spends it for at most `hold`.
pub(crate) fn slices(hold: SliceHold, limit: &RuleLimit) -> String {
    let hold = hold.span();
    let margin = match limit {
        RuleLimit::Fixed(Limit::Bucket(bucket)) => format!("; the bucket runs at {}", bucket.capacity()),
        _ => String::new(),
    };
    format!(
        "a server with many checks of this subject spends booked units without asking for up to {hold}{margin}"
    )
}

/// Describes the subject of a rule as in the file: `tenant, api_key | ip`; `all` if it counts all requests together.
pub(crate) fn per(per: &SubjectSelector) -> String {
    if per.parts.is_empty() {
        return "all".to_owned();
    }
    per.parts.iter().map(|chain| chain.join(" | ")).collect::<Vec<_>>().join(", ")
}

/// Describes why a condition is not met: `method must be GET or HEAD, but is POST`.
pub(crate) fn unmet_condition(
    condition: &Condition,
    attributes: &Attributes<'_>,
    rules_text: &RulesText,
) -> String {
    let Condition { attribute, test } = condition;
    let wanted = wanted(test, rules_text);
    format!("{attribute} must {wanted}, but {}", is_in(attribute, attributes))
}

fn wanted(test: &Test, rules_text: &RulesText) -> String {
    match test {
        Test::OneOf(values) => format!("be {}", any_of(values)),
        Test::Prefix(prefix) if prefix.is_empty() => "be present".to_owned(),
        Test::Prefix(prefix) => format!("start with {}", quoted_unless_plain(prefix)),
        Test::Glob(pattern) => format!("have the form {}", quoted_unless_plain(pattern)),
        Test::Address(blocks) => {
            format!("be in {}", any_of(&blocks.iter().map(ToString::to_string).collect::<Vec<_>>()))
        }
        Test::Path(pattern) => {
            format!(
                "have the form {}",
                rules_text.path(pattern).map_or("of its rule".into(), quoted_unless_plain)
            )
        }
        Test::Hashed(hashed) => {
            let hashes: Vec<String> = hashed.hashes.iter().map(|hash| hash.prefix()).collect();
            format!("have the hash {}", any_of(&hashes))
        }
        Test::Except(exclusion) => {
            let values =
                (!exclusion.values().is_empty()).then(|| format!("be {}", any_of(exclusion.values())));
            let patterns = exclusion.patterns().iter().map(|pattern| wanted(pattern, rules_text));
            let excluded: Vec<String> = values.into_iter().chain(patterns).collect();
            format!("{} and must not {}", wanted(exclusion.base(), rules_text), excluded.join(" or "))
        }
    }
}

/// Describes met conditions: `action is search, method is GET`.
pub(crate) fn met_conditions(conditions: &[Condition], attributes: &Attributes<'_>) -> String {
    if conditions.is_empty() {
        return "every request".to_owned();
    }
    let each = conditions
        .iter()
        .map(|Condition { attribute, .. }| format!("{attribute} {}", is_in(attribute, attributes)));
    each.collect::<Vec<_>>().join(", ")
}

/// The value of an attribute, and the other readings of a path.
fn is_in(attribute: &str, attributes: &Attributes<'_>) -> String {
    let value = is(attributes.get(attribute));
    match attributes.path_readings() {
        others if attribute == PATH && !others.is_empty() => {
            format!("{value}, also read as {}", any_of(others))
        }
        _ => value,
    }
}

fn is(value: Option<&str>) -> String {
    match value {
        Some(value) => format!("is {}", quoted_unless_plain(value)),
        None => "is absent".to_owned(),
    }
}

fn any_of(values: &[String]) -> String {
    const SHOWN_MAX: usize = 8;
    let mut shown: Vec<String> =
        values.iter().take(SHOWN_MAX).map(|value| quoted_unless_plain(value)).collect();
    if values.len() > SHOWN_MAX {
        shown.push(format!("one of {} more", values.len() - SHOWN_MAX));
    }
    match shown.as_slice() {
        [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        _ => shown.concat(),
    }
}

/// Describes where a cost comes from: `because method is POST`.
pub(crate) fn cost_reason(trace: &RuleTrace<'_, '_>, attributes: &Attributes<'_>) -> String {
    let (rule, resolved) = (trace.rule, trace.cost);
    if rule.postpaid && resolved.cost == 0 {
        return "because the rule is postpaid: admitted while anything is left".to_owned();
    }
    let reason = origin_of_cost(&rule.cost, resolved, attributes);
    if rule.postpaid { format!("{reason}; the rule is postpaid: booked without asking") } else { reason }
}

fn origin_of_cost(cost: &Cost, resolved: ResolvedCost, attributes: &Attributes<'_>) -> String {
    match cost {
        Cost::FromRequest => "from the request".to_owned(),
        Cost::One => "one lease, because the rule sets no `cost`".to_owned(),
        Cost::Constant(_) => "constant".to_owned(),
        Cost::Table { attribute, costs, .. } => {
            let value = attributes.get(attribute);
            match value.filter(|value| costs.contains_key(*value)) {
                Some(value) => format!("because {attribute} is {}", quoted_unless_plain(value)),
                None => format!("default because {attribute} {}", is(value)),
            }
        }
        Cost::Expression { text, .. } if resolved.failed => {
            format!("default because the expression failed: {}", escape_control(text))
        }
        Cost::Expression { text, .. } => format!("by the expression {}", escape_control(text)),
    }
}

/// Describes why one override wins over another that matches too.
pub(crate) fn override_precedence(winner: &Override, loser: &Override) -> String {
    if winner.live != loser.live {
        return "it is a live change".to_owned();
    }
    let (ends, conditions) = winner.rank();
    let (other_ends, others) = loser.rank();
    if ends != other_ends {
        "it has an end".to_owned()
    } else if conditions != others {
        format!("it has more conditions ({conditions} instead of {others})")
    } else {
        if winner.live { "it is newer" } else { "it comes later in the file" }.to_owned()
    }
}

/// Describes why an override does not match.
pub(crate) fn override_mismatch(
    change: &Override,
    attributes: &Attributes<'_>,
    now: Time,
    rules_text: &RulesText,
) -> String {
    let ended =
        change.until.filter(|&until| until <= now).map(|until| format!("it ended at {}", instant(until)));
    let unmet = change.conditions.iter().filter(|condition| !condition.holds(attributes));
    let unmet = unmet.map(|condition| unmet_condition(condition, attributes, rules_text));
    ended.into_iter().chain(unmet).collect::<Vec<_>>().join("; ")
}

pub(crate) fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Enforce => "enforce",
        Mode::Shadow => "shadow",
        Mode::Off => "off",
    }
}

pub(crate) fn on_failure(policy: OnFailure) -> String {
    match policy {
        OnFailure::Open => "open".to_owned(),
        OnFailure::Closed => "closed".to_owned(),
        OnFailure::Degraded => "degraded".to_owned(),
        OnFailure::Local { percent: Some(percent) } => format!("local {percent}%"),
        OnFailure::Local { percent: None } => "local fair".to_owned(),
        OnFailure::Cap { amount, period } => format!("cap {amount}/{period}"),
    }
}

/// Formats the share of a rollout, like `12.5%`.
pub(crate) fn percentage(rollout: Rollout) -> String {
    let points = rollout.basis_points();
    match points % 100 {
        0 => format!("{}%", points / 100),
        part => format!("{}.{}%", points / 100, format!("{part:02}").trim_end_matches('0')),
    }
}

/// Formats a position, like `rules.yaml:12`.
pub(crate) fn location(origin: &Origin) -> String {
    match origin.line {
        0 => origin.file.clone(),
        line => format!("{}:{line}", origin.file),
    }
}

/// Formats a reason to append to a sentence; empty if there is no reason.
pub(crate) fn reason_suffix(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(": {}", escape_control(reason)) }
}

/// Formats an instant as local time of a zone.
pub(crate) fn instant_in(time: Time, zone: &str) -> String {
    let zoned = timestamp(time).and_then(|timestamp| timestamp.in_tz(zone).ok());
    zoned.map_or_else(|| instant(time), |zoned| zoned.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_formatted_as_in_a_rules_file() {
        for (points, text) in [(0, "0%"), (1, "0.01%"), (1_250, "12.5%"), (2_505, "25.05%"), (10_000, "100%")]
        {
            assert_eq!(Rollout::new(points).map(percentage).as_deref(), Some(text));
        }
    }

    #[test]
    fn control_characters_in_a_reason_are_escaped() {
        assert_eq!(reason_suffix("a\u{1b}[2Jb\n"), ": a\\u{1b}[2Jb\\n");
        assert_eq!(reason_suffix(""), "");
    }
}
