//! Results of calls as names and values. HTTP sends them as JSON, RESP as maps and arrays.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tollgate::core::Decline;
use tollgate::limiter::{Recorded, Returned, RuleUsage};

use super::holds::Extended;

/// The result of each rule.
pub(crate) fn results(returned: &[Returned]) -> Value {
    json!({ "rules": returned.iter().map(result).collect::<Value>() })
}

/// The result of each rule, and whether the receipt was returned before.
pub(crate) fn returns(returned: &[Returned]) -> Value {
    let rules = returned.iter().map(|returned| {
        let mut rule = result(returned);
        rule["already_returned"] = returned.already_returned.into();
        rule
    });
    json!({ "rules": rules.collect::<Value>() })
}

/// The result of each rule, and how long the shortest lease lasts now.
pub(crate) fn renewed((returned, lease_ms): &(Vec<Returned>, u64)) -> Value {
    let mut answer = results(returned);
    answer["lease_ms"] = (*lease_ms).into();
    answer
}

/// By how much the consumption of each rule fell.
pub(crate) fn credits(returned: &[Returned]) -> Value {
    let mut answer = results(returned);
    answer["replayed"] = returned.iter().any(|rule| rule.already_returned).into();
    answer
}

/// What each rule booked.
pub(crate) fn recorded(recorded: &Recorded) -> Value {
    let rules = recorded.rules.iter().map(|rule| {
        let (amount, declined) = amount(rule.amount);
        json!({
            "rule": rule.rule,
            "amount": amount,
            "declined": declined,
            "cut": rule.cut,
            "overdraft": rule.overdraft,
            "limit": rule.limit,
            "remaining": rule.remaining,
            "retry_after_ms": ms_ceil(rule.retry_after),
            "delay_ms": ms_ceil(rule.delay),
        })
    });
    json!({ "rules": rules.collect::<Value>(), "replayed": recorded.replayed })
}

/// The answer to an extension, with the rule that refused it or the one with the least remaining.
pub(crate) fn extended(extended: &Extended) -> Value {
    let extension = &extended.extension;
    let least = || extension.rules.iter().filter(|rule| rule.blocking).min_by_key(|rule| rule.remaining);
    let headline = extension.refused_by().or_else(least);
    let rules = extension.rules.iter().map(|rule| {
        json!({
            "rule": rule.rule,
            "allowed": rule.allowed,
            "blocking": rule.blocking,
            "limit": rule.limit,
            "remaining": rule.remaining,
            "retry_after_ms": rule.retry_after.map(ms_ceil),
        })
    });
    let mut answer = json!({
        "allowed": extension.allowed,
        "rule": headline.map(|rule| &rule.rule),
        "limit": headline.map(|rule| rule.limit),
        "remaining": headline.map(|rule| rule.remaining),
        "retry_after_ms": extension.retry_after().map(ms_ceil),
        "rules": rules.collect::<Value>(),
        "replayed": extension.replayed,
        "receipt": extended.receipt,
        "expires_at_ms": extended.expires_at_ms,
    });
    if let Some(reference) = &extended.reference {
        answer["ref"] = reference.as_str().into();
    }
    answer
}

/// Whole milliseconds, rounded up: a caller that waits for them does not come too early.
fn ms_ceil(time: Duration) -> u64 {
    u64::try_from(time.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX)
}

/// What was used under each rule.
pub(crate) fn usage(usage: &[RuleUsage]) -> Value {
    let rules = usage.iter().map(|rule| {
        json!({
            "rule": rule.rule,
            "limit": rule.limit,
            "used": rule.used,
            "held": rule.held,
            "remaining": rule.remaining,
            "overdraft": rule.overdraft,
            "reset_at_ms": ms(rule.reset_at),
            "period_ms": rule.period.map(|period| period.as_millis() as u64),
        })
    });
    json!({ "rules": rules.collect::<Value>() })
}

/// Milliseconds since 1970.
fn ms(instant: SystemTime) -> u64 {
    instant.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

fn result(returned: &Returned) -> Value {
    let (amount, declined) = amount(returned.amount);
    json!({ "rule": returned.rule, "amount": amount, "declined": declined })
}

/// The amount, and the name of the reason if the rule declined.
pub(super) fn amount(amount: Result<u64, Decline>) -> (u64, Option<&'static str>) {
    match amount {
        Ok(amount) => (amount, None),
        Err(why) => (0, Some(declined(why))),
    }
}

/// The name of a reason. Programs depend on it.
const fn declined(why: Decline) -> &'static str {
    match why {
        Decline::NotSupported => "not-supported",
        Decline::NotHeld => "not-held",
        Decline::TooOld => "too-old",
        Decline::TokenInUse => "token-in-use",
        Decline::TooManyReservations => "too-many-reservations",
        Decline::BookedLate => "booked-late",
        Decline::Recompute { .. } => "recompute",
        Decline::ReceiptExpired => "receipt-expired",
        Decline::ResetSince => "reset-since",
        Decline::WindowChanged => "window-changed",
        Decline::Overflow => "overflow",
        Decline::Unverified => "unverified",
    }
}
