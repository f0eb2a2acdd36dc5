//! Sentences about rules.

use tollgate::core::rules::cost::ResolvedCost;
use tollgate::core::rules::{Condition, Cost, Mode, Origin, Override, Rollout, Test};
use tollgate::core::{Attributes, OnFailure, Time};

use super::written::Written;
pub(super) use crate::cli::terminal::instant;
use crate::cli::terminal::{timestamp, typed};
use crate::text::escape_control;

/// `method must be GET or HEAD, but is POST`.
pub(super) fn unmet(condition: &Condition, attributes: &Attributes<'_>, written: &Written) -> String {
    let Condition { attribute, test } = condition;
    let wanted = match test {
        Test::OneOf(values) => format!("must be {}", any_of(values)),
        Test::Prefix(prefix) => format!("must start with {}", typed(prefix)),
        Test::Glob(pattern) => format!("must have the form {}", typed(pattern)),
        Test::Path(pattern) => {
            format!("must have the form {}", written.path(pattern).map_or("that its rule says".into(), typed))
        }
    };
    format!("{attribute} {wanted}, but {}", is(attributes.get(attribute)))
}

/// `action is search, method is GET`.
pub(super) fn met(conditions: &[Condition], attributes: &Attributes<'_>) -> String {
    if conditions.is_empty() {
        return "every request".to_owned();
    }
    let each = conditions
        .iter()
        .map(|Condition { attribute, .. }| format!("{attribute} {}", is(attributes.get(attribute))));
    each.collect::<Vec<_>>().join(", ")
}

fn is(value: Option<&str>) -> String {
    match value {
        Some(value) => format!("is {}", typed(value)),
        None => "is absent".to_owned(),
    }
}

fn any_of(values: &[String]) -> String {
    let values: Vec<String> = values.iter().map(|value| typed(value)).collect();
    match values.as_slice() {
        [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        _ => values.concat(),
    }
}

/// Where a cost comes from, after the cost itself: `because method is POST`.
pub(super) fn why_cost(cost: &Cost, priced: ResolvedCost, attributes: &Attributes<'_>) -> String {
    match cost {
        Cost::FromRequest => "as the caller asks".to_owned(),
        Cost::Constant(_) => "always".to_owned(),
        Cost::Table { attribute, costs, .. } => {
            let value = attributes.get(attribute);
            match value.filter(|value| costs.contains_key(*value)) {
                Some(value) => format!("because {attribute} is {}", typed(value)),
                None => format!("default because {attribute} {}", is(value)),
            }
        }
        Cost::Expression { text, .. } if priced.failed => {
            format!("default because the expression failed: {}", escape_control(text))
        }
        Cost::Expression { text, .. } => format!("by the expression {}", escape_control(text)),
    }
}

/// Why one override beats another that applies as well.
pub(super) fn why_beats(winner: &Override, loser: &Override) -> String {
    let (ends, conditions) = winner.rank();
    let (other_ends, others) = loser.rank();
    if ends != other_ends {
        "it ends by itself".to_owned()
    } else if conditions != others {
        format!("it has more conditions: {conditions} against {others}")
    } else {
        "it stands later in the file".to_owned()
    }
}

/// Why an override does not apply.
pub(super) fn why_not(
    change: &Override,
    attributes: &Attributes<'_>,
    now: Time,
    written: &Written,
) -> String {
    let ended =
        change.until.filter(|&until| until <= now).map(|until| format!("it ended at {}", instant(until)));
    let unmet = change.conditions.iter().filter(|condition| !condition.holds(attributes));
    let unmet = unmet.map(|condition| self::unmet(condition, attributes, written));
    ended.into_iter().chain(unmet).collect::<Vec<_>>().join("; ")
}

pub(super) fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Enforce => "enforce",
        Mode::Shadow => "shadow",
        Mode::Off => "off",
    }
}

pub(super) fn on_failure(policy: OnFailure) -> String {
    match policy {
        OnFailure::Open => "open".to_owned(),
        OnFailure::Closed => "closed".to_owned(),
        OnFailure::Degraded => "degraded".to_owned(),
        OnFailure::Local { percent } => format!("local {percent}%"),
        OnFailure::Cap { amount, period } => format!("cap {amount}/{period}"),
    }
}

/// `12.5%`.
pub(super) fn share(rollout: Rollout) -> String {
    let points = rollout.basis_points();
    match points % 100 {
        0 => format!("{}%", points / 100),
        part => format!("{}.{}%", points / 100, format!("{part:02}").trim_end_matches('0')),
    }
}

/// `rules.yaml:12`.
pub(super) fn place(origin: &Origin) -> String {
    match origin.line {
        0 => origin.file.clone(),
        line => format!("{}:{line}", origin.file),
    }
}

/// What is appended to a sentence to say why; nothing if nobody said.
pub(super) fn reason(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(": {}", escape_control(reason)) }
}

/// The instant as a clock in this zone shows it.
pub(super) fn instant_in(time: Time, zone: &str) -> String {
    let zoned = timestamp(time).and_then(|timestamp| timestamp.in_tz(zone).ok());
    zoned.map_or_else(|| instant(time), |zoned| zoned.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_written_as_in_a_rules_file() {
        for (points, text) in [(0, "0%"), (1, "0.01%"), (1_250, "12.5%"), (2_505, "25.05%"), (10_000, "100%")]
        {
            assert_eq!(Rollout::new(points).map(share).as_deref(), Some(text));
        }
    }

    #[test]
    fn a_reason_cannot_move_the_cursor() {
        assert_eq!(reason("a\u{1b}[2Jb\n"), ": a\\u{1b}[2Jb\\n");
        assert_eq!(reason(""), "");
    }
}
