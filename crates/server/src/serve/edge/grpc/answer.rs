//! What is answered: a status for every descriptor, header fields for the client, and why, for logs.

use prost_types::value::Kind;
use prost_types::{Duration, Struct, Value};
use tollgate::Decision;
use tollgate::core::decision::{Numbers, RetryAfter, Source};
use tollgate::core::{Limit, PlanError, Time};
use tollgate::headers::Dialect;
use tollgate::limiter::CheckError;
use tonic::Status;

use super::own_limit::{Charged, OwnLimit};
use super::proto::{Code, DescriptorStatus, HeaderValue, RateLimit, RateLimitResponse, Unit};
use super::question::MESSAGE_MAX;
use crate::serve::gate::Throttled;

/// What is made of the decisions about all descriptors, none of which brought a limit along.
pub(super) fn of_decisions(decisions: &[Decision], dialect: Dialect) -> RateLimitResponse {
    let statuses: Vec<DescriptorStatus> = decisions.iter().map(status).collect();
    let leading = leading(decisions);
    RateLimitResponse {
        overall_code: overall(&statuses).into(),
        statuses,
        response_headers_to_add: leading.map_or_else(Vec::new, |decision| headers(decision, dialect)),
        dynamic_metadata: leading.and_then(metadata),
        ..RateLimitResponse::default()
    }
}

/// The same with the answers to those that did, each in its place.
pub(super) fn with_own_limits(mut answer: RateLimitResponse, charged: &[Charged]) -> RateLimitResponse {
    for charged in charged {
        answer.statuses.insert(charged.at, own_status(charged));
    }
    answer.overall_code = overall(&answer.statuses).into();
    let wait = charged.iter().filter_map(own_wait_s).max();
    if let Some(wait) = wait.filter(|_| !answer.response_headers_to_add.iter().any(is_retry_after)) {
        answer.response_headers_to_add.push(header("retry-after", wait.to_string()));
    }
    answer
}

/// What is made of a question that has no decision. What clients can bring about, they are refused for: an error would be
/// taken for an outage, in which a gateway may let them pass.
pub(super) fn of_error(error: &CheckError, descriptors: usize) -> Result<RateLimitResponse, Status> {
    match error {
        CheckError::Plan(PlanError::CostAboveCapacity { .. } | PlanError::CostTooLarge { .. }) => {
            Ok(refused(&error.to_string(), descriptors))
        }
        CheckError::Plan(_) | CheckError::Undecided(_) | CheckError::IdReused => {
            tracing::warn!(event = "undecided", edge = "grpc", "{error}");
            Err(Status::internal(error.to_string()))
        }
    }
}

/// A message that is too large is refused for the same reason.
pub(super) fn too_large() -> RateLimitResponse {
    refused(&format!("the message has more than {MESSAGE_MAX} bytes"), 0)
}

fn refused(why: &str, descriptors: usize) -> RateLimitResponse {
    let status = DescriptorStatus { code: Code::OverLimit.into(), ..DescriptorStatus::default() };
    RateLimitResponse {
        overall_code: Code::OverLimit.into(),
        statuses: vec![status; descriptors],
        dynamic_metadata: Some(object([("reason", Kind::StringValue(why.to_owned()))])),
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
    let Some(rule) = decision.headline() else { return status };
    let (Some(numbers), Some(limit)) = (rule.outcome().numbers, rule.limit_in_force()) else { return status };
    let Numbers { limit: stated, remaining, reset_at_ms, reset_after_ms, .. } = numbers;
    // A calendar period ends at the reset, so the instant before it lies within.
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

/// How long a limit of the caller's own has to be waited for, if it refuses.
fn own_wait_s(charged: &Charged) -> Option<u64> {
    let Throttled { now, answer } = charged.found.filter(|_| !charged.is_admitted())?;
    Some((answer.reset_at - now).secs_ceil().max(1))
}

fn current_limit(name: &str, stated: u64, limit: &Limit, within: Time) -> RateLimit {
    RateLimit { name: name.to_owned(), requests_per_unit: clamped(stated), unit: unit(limit, within).into() }
}

/// The unit that a limit's window is; windows of other lengths have none.
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

/// The decision to tell the client about: of a refusal the one with the longest wait, of an admission the one that is
/// nearest to its limit.
fn leading(decisions: &[Decision]) -> Option<&Decision> {
    let refused = decisions.iter().filter(|decision| !decision.allowed());
    // Of equals the first: `max_by_key` takes the last.
    refused.rev().max_by_key(|decision| wait(decision)).or_else(|| {
        let told = decisions.iter().filter_map(|decision| Some((decision, decision.headline()?)));
        let headroom = |rule: &tollgate::RuleDecision<'_>| rule.remaining().unwrap_or(0) / rule.cost().max(1);
        told.min_by_key(|(_, rule)| headroom(rule)).map(|(decision, _)| decision)
    })
}

fn wait(decision: &Decision) -> RetryAfter {
    let numbers = decision.headline().and_then(|rule| rule.outcome().numbers);
    numbers.map_or(RetryAfter::Ms(0), |numbers| numbers.retry_after)
}

fn headers(decision: &Decision, dialect: Dialect) -> Vec<HeaderValue> {
    dialect.fields(decision).into_iter().map(|field| header(field.name, field.value)).collect()
}

fn header(name: &str, value: String) -> HeaderValue {
    HeaderValue { key: name.to_owned(), value, raw_value: Vec::new() }
}

fn is_retry_after(header: &HeaderValue) -> bool {
    header.key == "retry-after"
}

/// What an access log may want to know: nothing, as a rule.
fn metadata(decision: &Decision) -> Option<Struct> {
    let is_fallback = decision.source() == Source::Fallback;
    let delay_ms = decision.plan_decision().delay_ms;
    if decision.allowed() && !is_fallback && delay_ms == 0 {
        return None;
    }
    let mut told = object([("fallback", Kind::BoolValue(is_fallback))]);
    let mut tell = |name: &str, kind| {
        told.fields.insert(name.to_owned(), Value { kind: Some(kind) });
    };
    if let Some(rule) = decision.headline() {
        tell("rule", Kind::StringValue(rule.id().to_owned()));
    }
    if decision.degraded() {
        tell("degraded", Kind::BoolValue(true));
    }
    if delay_ms > 0 {
        tell("delay_ms", Kind::NumberValue(delay_ms as f64));
    }
    Some(told)
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
