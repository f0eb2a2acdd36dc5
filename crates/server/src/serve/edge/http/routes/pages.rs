//! Read-only pages: health, readiness, metrics, rules in force and the OpenAPI description.

use http::request::Parts;
use http::{HeaderValue, StatusCode, header};
use serde_json::{Value, json};
use tollgate::core::rules::rule_set::ListEntry;
use tollgate::core::rules::{Mode, Origin, Override, Rule, RuleLimit, RuleSet, Unmatched};
use tollgate::{Clock, SystemClock};

use super::changes::query;
use crate::explanation::describe;
use crate::explanation::rules_text::RulesText;
use crate::serve::edge::http::error::HttpError;
use crate::serve::edge::http::response::{self, HttpResponse, NO_STORE};
use crate::serve::readiness::readiness;
use crate::serve::server_state::ServerState;

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
/// The Prometheus text format.
const EXPOSITION: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
const OPENAPI: &str = include_str!("../openapi.json");

/// Responds as long as the process serves.
pub(super) fn health() -> HttpResponse {
    let mut response = response::new(StatusCode::OK, TEXT, "ok\n");
    response.headers_mut().insert(header::CACHE_CONTROL, NO_STORE);
    response
}

/// Whether the server should get requests.
pub(super) fn ready(state: &ServerState) -> HttpResponse {
    let (is_ready, status) = readiness(state);
    let mut response = response::json(status.to_string());
    if !is_ready {
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    }
    response.headers_mut().insert(header::CACHE_CONTROL, NO_STORE);
    response
}

/// All metrics.
pub(super) fn metrics(state: &ServerState) -> HttpResponse {
    let mut response = response::new(StatusCode::OK, EXPOSITION, state.metrics());
    response.headers_mut().insert(header::CACHE_CONTROL, NO_STORE);
    response
}

/// The description of every path.
pub(super) fn openapi() -> HttpResponse {
    response::json(OPENAPI)
}

/// What the doctor has found.
pub(super) fn doctor(state: &ServerState) -> HttpResponse {
    let findings = state.doctor.borrow().to_json(state.gate.references().server());
    let mut response = response::json(findings.to_string());
    response.headers_mut().insert(header::CACHE_CONTROL, NO_STORE);
    response
}

/// The rules in force, without their subjects. With `document=true`, also what the rules file says.
pub(super) fn rules(parts: &Parts, state: &ServerState) -> Result<HttpResponse, HttpError> {
    let has_document = match query(parts, &["document"])?.first() {
        None => false,
        Some((_, text)) if matches!(&**text, "true" | "false") => text == "true",
        Some(_) => return Err(HttpError::bad_request("bad-query", "`document` must be `true` or `false`")),
    };
    let in_force = state.rules.in_force();
    let mut described = state.gate.with_rules(|rules| rules_json(rules, &in_force.text));
    let mut rules = json!({
        "version": in_force.version,
        "fingerprint": in_force.fingerprint,
        "loaded_at": in_force.loaded_at.to_string(),
        "name": in_force.name,
        "refused": in_force.refused,
        "unmatched": state.gate.with_rules(|rules| match rules.unmatched() {
            Unmatched::Allow => "allow",
            Unmatched::Refuse => "refuse",
        }),
        "rules": described["rules"].take(),
        "deny": described["deny"].take(),
        "bypass": described["bypass"].take(),
    });
    if has_document {
        rules["document"] = state.gate.with_rules(|rules| in_force.text.document(rules));
    }
    let mut response = response::json(rules.to_string());
    response.headers_mut().insert(header::CACHE_CONTROL, NO_STORE);
    Ok(response)
}

/// The rules and the lists as callers see them.
fn rules_json(rules: &RuleSet, text: &RulesText) -> Value {
    let each = rules.rules().iter().enumerate();
    let each = each.map(|(index, rule)| of_rule(rule, rules.overrides_of(index), text));
    let list = |entries: &[ListEntry]| entries.iter().map(|entry| of_entry(entry, text)).collect::<Value>();
    json!({ "rules": each.collect::<Value>(), "deny": list(rules.deny()), "bypass": list(rules.bypass()) })
}

fn of_entry(entry: &ListEntry, text: &RulesText) -> Value {
    let Origin { file, line } = &entry.origin;
    json!({
        "when": describe::conditions(&entry.conditions, text),
        "subject": entry.subject.as_ref().map(|subject| &subject.hash),
        "until": entry.until.map(describe::instant),
        "reason": entry.reason,
        "live": *line == 0,
        "file": file,
        "line": line,
    })
}

fn of_rule(rule: &Rule, overrides: &[Override], text: &RulesText) -> Value {
    let Origin { file, line } = &rule.origin;
    json!({
        "id": rule.keyspace.rule(),
        "description": rule.description,
        "file": file,
        "line": line,
        "match": describe::conditions(&rule.conditions, text),
        "per": describe::per(&rule.per),
        "algorithm": rule.limit.algorithm().map(|algorithm| algorithm.name()),
        "limit": limit(&rule.limit),
        "window_ms": window_ms(&rule.limit),
        "written": text.limit(&rule.limit, &rule.origin).text,
        "mode": mode(rule.mode),
        "rollout": describe::percentage(rule.rollout),
        "overrides": overrides
            .iter()
            .filter(|change| !change.is_part)
            .map(|change| of_override(change, text))
            .collect::<Value>(),
    })
}

pub(super) fn of_override(change: &Override, text: &RulesText) -> Value {
    let Origin { file, line } = &change.origin;
    json!({
        "when": describe::conditions(&change.conditions, text),
        "limit": limit(&change.limit),
        "window_ms": window_ms(&change.limit),
        "written": text.limit(&change.limit, &change.origin).text,
        "until": change.until.map(describe::instant),
        "reason": change.reason,
        "live": change.live,
        "scaled": change.scaled,
        "file": file,
        "line": line,
    })
}

/// The window or period in milliseconds, or the time to fill; `None` if the limit has none.
fn window_ms(limit: &RuleLimit) -> Option<u64> {
    let now = SystemClock.now();
    Some(limit.at(now)?.window(now)?.us().div_ceil(1_000))
}

/// The limit that decisions state.
const fn limit(limit: &RuleLimit) -> u64 {
    match limit {
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
