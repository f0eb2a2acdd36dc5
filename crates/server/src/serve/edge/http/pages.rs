//! What is only looked at: health, rules in force, the description of all this, the status page.

use http::{HeaderValue, StatusCode, header};
use serde_json::{Value, json};
use tollgate::core::rules::{Mode, Rule, RuleLimit};

use super::answer::{self, Answer, NO_STORE};
use crate::serve::readiness::readiness;
use crate::serve::shared::Shared;

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
/// The format of Prometheus.
const EXPOSITION: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
const OPENAPI: &str = include_str!("openapi.json");

/// The process serves.
pub(super) fn health() -> Answer {
    let mut answer = answer::of(StatusCode::OK, TEXT, "ok\n");
    answer.headers_mut().insert(header::CACHE_CONTROL, NO_STORE);
    answer
}

/// Whether a server should be asked.
pub(super) fn ready(shared: &Shared) -> Answer {
    let (is_ready, told) = readiness(shared);
    let mut answer = answer::json(told.to_string());
    if !is_ready {
        *answer.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    }
    answer.headers_mut().insert(header::CACHE_CONTROL, NO_STORE);
    answer
}

/// Everything that is counted.
pub(super) fn metrics(shared: &Shared) -> Answer {
    let mut answer = answer::of(StatusCode::OK, EXPOSITION, shared.metrics());
    answer.headers_mut().insert(header::CACHE_CONTROL, NO_STORE);
    answer
}

/// Everything that can be asked, and every answer.
pub(super) fn openapi() -> Answer {
    answer::json(OPENAPI)
}

/// The rules in force, without anybody they count.
pub(super) fn rules(shared: &Shared) -> Answer {
    let in_force = shared.rules.in_force();
    let told = json!({
        "version": in_force.version,
        "fingerprint": in_force.fingerprint,
        "loaded_at": in_force.loaded_at.to_string(),
        "name": in_force.name,
        "refused": in_force.refused,
        "rules": shared.gate.with_rules(|rules| rules.rules().iter().map(of_rule).collect::<Value>()),
    });
    let mut answer = answer::json(told.to_string());
    answer.headers_mut().insert(header::CACHE_CONTROL, NO_STORE);
    answer
}

fn of_rule(rule: &Rule) -> Value {
    json!({
        "id": rule.keyspace.rule(),
        "description": rule.description,
        "algorithm": rule.limit.algorithm().map(|algorithm| algorithm.name()),
        "limit": limit(rule),
        "mode": mode(rule.mode),
    })
}

/// The number that answers tell as the limit, before any override.
pub(super) const fn limit(rule: &Rule) -> u64 {
    match &rule.limit {
        RuleLimit::Deny => 0,
        RuleLimit::Fixed(limit) => limit.reported_limit(),
        RuleLimit::Calendar { allowance, .. } => *allowance,
    }
}

pub(super) const fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Enforce => "enforce",
        Mode::Shadow => "shadow",
        Mode::Off => "off",
    }
}
