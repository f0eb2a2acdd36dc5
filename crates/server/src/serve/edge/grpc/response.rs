//! Responses: a status for every descriptor, header fields for the client, and metadata for access logs.

use prost_types::value::Kind;
use prost_types::{Duration, Struct, Value};
use tollgate::Decision;
use tollgate::core::decision::{Numbers, RetryAfter, Source};
use tollgate::core::{Limit, Time};
use tollgate::headers::{Dialect, Fields};
use tonic::body::Body;

use super::credit::Credited;
use super::own_limit::{Charged, OwnLimit};
use super::proto::{Code, DescriptorStatus, HeaderValue, RateLimit, RateLimitResponse, Unit};
use super::unary;
use crate::reference;
use crate::serve::edge::error::EdgeError;
use crate::serve::gate::{Gate, Throttled};

/// The response for descriptors without limits.
pub(super) fn from_decisions(decisions: &[Decision], dialect: Dialect, gate: &Gate) -> RateLimitResponse {
    let statuses: Vec<DescriptorStatus> = decisions.iter().map(status).collect();
    let leading = leading(decisions);
    let headers = leading.map_or_else(Fields::new, |leading| dialect.fields_together(decisions, leading));
    let reference = leading.and_then(|leading| gate.reference(&decisions[leading]));
    let reference = reference.map(|reference| header(reference::HEADER, reference));
    let headers = headers.into_iter().map(|field| header(field.name, field.value));
    RateLimitResponse {
        overall_code: overall(&statuses).into(),
        statuses,
        response_headers_to_add: headers.chain(reference).collect(),
        dynamic_metadata: leading.and_then(|leading| metadata(&decisions[leading])),
    }
}

/// Adds the results of the descriptors with limits and of those that give back, each at its index.
pub(super) fn with_others(
    mut response: RateLimitResponse,
    charged: &[Charged],
    credited: &[Credited],
) -> RateLimitResponse {
    let own_limits = charged.iter().map(|charged| (charged.index, own_status(charged)));
    let credits = credited.iter().map(|credited| (credited.index, credit_status()));
    let mut others: Vec<(usize, DescriptorStatus)> = own_limits.chain(credits).collect();
    others.sort_unstable_by_key(|(index, _)| *index);
    for (index, status) in others {
        response.statuses.insert(index, status);
    }
    if let Some(failure) = credited.iter().find_map(|credited| credited.failure.as_ref()) {
        let metadata = response.dynamic_metadata.get_or_insert_default();
        let reason = format!("nothing was given back: {}", failure.message());
        let reason = Value { kind: Some(Kind::StringValue(reason)) };
        metadata.fields.entry("reason".to_owned()).or_insert(reason);
    }
    response.overall_code = overall(&response.statuses).into();
    let wait = charged.iter().filter_map(own_wait_s).max();
    if let Some(wait) = wait.filter(|_| !response.response_headers_to_add.iter().any(is_retry_after)) {
        response.response_headers_to_add.push(header("retry-after", wait.to_string()));
    }
    response
}

/// The response to a request that gets no decision: an error, or a refusal of all its descriptors.
#[cold]
pub(super) fn error(error: &EdgeError, descriptors: usize) -> http::Response<Body> {
    match error.grpc_status() {
        Some(status) => status.into_http(),
        None => unary::response(&refused(error.message(), descriptors)),
    }
}

fn refused(reason: &str, descriptors: usize) -> RateLimitResponse {
    let status = DescriptorStatus { code: Code::OverLimit.into(), ..DescriptorStatus::default() };
    RateLimitResponse {
        overall_code: Code::OverLimit.into(),
        statuses: vec![status; descriptors],
        dynamic_metadata: Some(object([("reason", Kind::StringValue(reason.to_owned()))])),
        ..RateLimitResponse::default()
    }
}

fn overall(statuses: &[DescriptorStatus]) -> Code {
    let is_refused = |status: &DescriptorStatus| status.code == i32::from(Code::OverLimit);
    if statuses.iter().any(is_refused) { Code::OverLimit } else { Code::Ok }
}

fn status(decision: &Decision) -> DescriptorStatus {
    let code = if decision.allowed() { Code::Ok } else { Code::OverLimit };
    let mut status = DescriptorStatus { code: code.into(), ..DescriptorStatus::default() };
    // The bypass list: the caller can tell an unlimited descriptor from one that no rule matches.
    if decision.source() == Source::List && decision.allowed() {
        status.limit_remaining = u32::MAX;
    }
    let Some(rule) = decision.headline() else { return status };
    let (Some(numbers), Some(limit)) = (rule.outcome().numbers, rule.limit_in_force()) else { return status };
    let Numbers { limit: stated, remaining, reset_at_ms, reset_after_ms, .. } = numbers;
    // A calendar period ends at the reset, so the instant before it is in the period.
    let within = Time::from_us(reset_at_ms.saturating_mul(1_000).saturating_sub(1));
    status.current_limit = Some(current_limit(rule.id(), stated, &limit, within));
    status.limit_remaining = clamped(remaining);
    status.duration_until_reset = Some(duration(reset_after_ms));
    status
}

fn own_status(charged: &Charged) -> DescriptorStatus {
    let code = if charged.is_admitted() { Code::Ok } else { Code::OverLimit };
    let mut status = DescriptorStatus { code: code.into(), ..DescriptorStatus::default() };
    let OwnLimit::Some(limit) = &charged.limit else { return status };
    status.current_limit = Some(current_limit("", limit.reported_limit(), limit, Time::ZERO));
    if let Some(Throttled { now, answer }) = charged.found {
        status.limit_remaining = clamped(answer.remaining);
        status.duration_until_reset = Some(duration((answer.reset_at - now).ms_ceil()));
    }
    status
}

/// A credit is never refused, and has no numbers.
fn credit_status() -> DescriptorStatus {
    DescriptorStatus { code: Code::Ok.into(), ..DescriptorStatus::default() }
}

/// The wait for the caller's own limit, if it refused.
fn own_wait_s(charged: &Charged) -> Option<u64> {
    let Throttled { now, answer } = charged.found.filter(|_| !charged.is_admitted())?;
    Some((answer.reset_at - now).secs_ceil().max(1))
}

fn current_limit(name: &str, stated: u64, limit: &Limit, within: Time) -> RateLimit {
    RateLimit { name: name.to_owned(), requests_per_unit: clamped(stated), unit: unit(limit, within).into() }
}

/// The unit with the length of a limit's window, if there is one.
fn unit(limit: &Limit, within: Time) -> Unit {
    const DAY_S: u64 = 86_400;
    let Some(window) = limit.window(within).filter(|window| window.us() % 1_000_000 == 0) else {
        return Unit::Unknown;
    };
    match window.secs_ceil() {
        1 => Unit::Second,
        60 => Unit::Minute,
        3_600 => Unit::Hour,
        DAY_S => Unit::Day,
        seconds if seconds == 7 * DAY_S => Unit::Week,
        seconds if (28 * DAY_S..=31 * DAY_S).contains(&seconds) => Unit::Month,
        seconds if (365 * DAY_S..=366 * DAY_S).contains(&seconds) => Unit::Year,
        _ => Unit::Unknown,
    }
}

/// The index of the decision that the client's header fields start with: the refusal with the longest wait, or the
/// admission that is nearest to its limit.
fn leading(decisions: &[Decision]) -> Option<usize> {
    let refused = decisions.iter().enumerate().filter(|(_, decision)| !decision.allowed());
    // Reversed, because `max_by_key` returns the last of equals.
    let longest = refused.rev().max_by_key(|(_, decision)| wait(decision)).map(|(index, _)| index);
    longest.or_else(|| {
        let matched = decisions.iter().enumerate();
        let matched = matched.filter_map(|(index, decision)| Some((index, decision.headline()?)));
        let headroom = |rule: &tollgate::RuleDecision<'_>| rule.remaining().unwrap_or(0) / rule.cost().max(1);
        matched.min_by_key(|(_, rule)| headroom(rule)).map(|(index, _)| index)
    })
}

fn wait(decision: &Decision) -> RetryAfter {
    let numbers = decision.headline().and_then(|rule| rule.outcome().numbers);
    numbers.map_or(RetryAfter::Ms(0), |numbers| numbers.retry_after)
}

fn header(name: &str, value: String) -> HeaderValue {
    HeaderValue { key: name.to_owned(), value }
}

fn is_retry_after(header: &HeaderValue) -> bool {
    header.key == "retry-after"
}

/// Metadata for an access log; `None` for an ordinary admission.
fn metadata(decision: &Decision) -> Option<Struct> {
    let is_fallback = decision.source() == Source::Fallback;
    let delay_ms = decision.plan_decision().delay_ms;
    if decision.allowed() && !is_fallback && delay_ms == 0 {
        return None;
    }
    let mut metadata = object([("fallback", Kind::BoolValue(is_fallback))]);
    let mut set = |name: &str, kind| {
        metadata.fields.insert(name.to_owned(), Value { kind: Some(kind) });
    };
    if let Some(rule) = decision.headline() {
        set("rule", Kind::StringValue(rule.id().to_owned()));
    }
    if decision.source() == Source::Unmatched {
        set("reason", Kind::StringValue("no rule matches".to_owned()));
    }
    if decision.degraded() {
        set("degraded", Kind::BoolValue(true));
    }
    if delay_ms > 0 {
        set("delay_ms", Kind::NumberValue(delay_ms as f64));
    }
    Some(metadata)
}

fn object<const N: usize>(fields: [(&str, Kind); N]) -> Struct {
    let field = |(name, kind): (&str, Kind)| (name.to_owned(), Value { kind: Some(kind) });
    Struct { fields: fields.into_iter().map(field).collect() }
}

fn duration(ms: u64) -> Duration {
    let seconds = i64::try_from(ms / 1_000).unwrap_or(i64::MAX);
    let nanos = i32::try_from(ms % 1_000 * 1_000_000).unwrap_or(0);
    Duration { seconds, nanos }
}

fn clamped(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
