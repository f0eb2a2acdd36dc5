//! `/v1/explain`: why a check would return what it would return, or why one was refused. Charges nothing.
//!
//! Fields name subjects by kind and by the beginning of their hash, as logs do. Only `lines` repeats values that the caller
//! sent.

use http::{StatusCode, header};
use serde_json::{Value, json};
use tollgate::core::Subject;
use tollgate::core::decision::RetryAfter;
use tollgate::core::limit::part::Shards;
use tollgate::core::rules::{Origin, Request};
use tollgate::engine::layer_sentence;
use tollgate::limiter::{Account, ExplainedNumbers, Explanation, RuleExplanation, RuleUsage};
use tollgate::{Clock, SystemClock};

use super::pages::{mode, of_override};
use crate::explanation::{self, text};
use crate::serve::edge::http::error::HttpError;
use crate::serve::edge::http::request_body::BodyKind;
use crate::serve::edge::http::response::{self, HttpResponse, NO_STORE};
use crate::serve::observe::RecentRefusal;
use crate::serve::server_state::ServerState;

/// Entries of recent refusals in one answer.
const RECENT_MAX: usize = 64;

pub(super) async fn explain(body: &[u8], state: &ServerState) -> Result<HttpResponse, HttpError> {
    let body = BodyKind::Explain.read(body)?;
    if let Some(reference) = body.reference() {
        return refusal(reference, state);
    }
    let request = body.check_request()?;
    let explanation = state.gate.explain(request.request()).await;
    let lines = lines(request.request(), state);
    let subjects: Vec<Subject> = explanation.rules.iter().filter_map(|rule| rule.subject_hash).collect();
    let recent = state.gate.recorder().recent_refusals(&subjects);
    let recent: Value = recent.iter().take(RECENT_MAX).map(of_recent).collect();
    let (explained, hash_key) = (of(&explanation, &lines, state), hash_key(state));
    let server = json!(state.gate.references().server());
    let mut response = response::json(format!(
        r#"{{{explained},"recent_refusals":{recent},"server":{server},"hash_key":{hash_key}}}"#
    ));
    response.headers_mut().insert(header::CACHE_CONTROL, NO_STORE);
    Ok(response)
}

/// What a reference says. The numbers are those that the client got, whatever the rules are now.
fn refusal(reference: &str, state: &ServerState) -> Result<HttpResponse, HttpError> {
    let opened = state.gate.references().open(reference);
    let refusal = opened.map_err(|error| {
        let detail =
            format!("{error}; send the ref unchanged, to a server with the hash key of the one that refused");
        HttpError::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid-ref", detail)
    })?;
    let mut of = refusal.to_json();
    of["rules_are_in_force"] = (refusal.rules_fingerprint == *state.gate.rules_fingerprint()).into();
    let answer = json!({ "refusal": of, "hash_key": hash_key(state) });
    let mut response = response::json(answer.to_string());
    response.headers_mut().insert(header::CACHE_CONTROL, NO_STORE);
    Ok(response)
}

/// The hash key of this server, and whether the other servers on its store have the same.
pub(super) fn hash_key(state: &ServerState) -> Value {
    let hasher = state.gate.hashers().current();
    let fleet = state.others.as_ref().map(|others| {
        let others = others.borrow();
        match (others.is_outvoted || others.other_hash_key.is_some(), others.unheard) {
            (true, _) => "differs",
            (false, true) => "unknown",
            (false, false) => "same",
        }
    });
    json!({ "id": hasher.key_id(), "fingerprint": hasher.fingerprint(), "fleet": fleet })
}

fn of_recent(recent: &RecentRefusal) -> Value {
    let RecentRefusal {
        subject,
        rule,
        first_ms,
        last_ms,
        count,
        source,
        cost,
        limit,
        remaining,
        retry_after_ms,
    } = recent;
    json!({
        "rule": rule,
        "subject": subject.prefix(),
        "first_ms": first_ms,
        "last_ms": last_ms,
        "count": count,
        "source": source.name(),
        "cost": cost,
        "limit": limit,
        "remaining": remaining,
        "retry_after_ms": retry_after_ms,
        "retry_at_ms": retry_after_ms.map(|wait_ms| last_ms.saturating_add(wait_ms)),
    })
}

/// The lines that `tollgate explain` prints for this request, with the hash keys of this server.
fn lines(request: Request<'_>, state: &ServerState) -> Vec<String> {
    let in_force = state.rules.in_force();
    let now = SystemClock.now();
    let text = state.gate.with_rules(|rules| {
        let hashers = (state.gate.hashers(), false);
        let values = rules.prepare(request.attributes);
        let prepared = values.as_ref().map(|values| values.replace_in(request.attributes));
        let request = Request { attributes: prepared.as_ref().unwrap_or(request.attributes), ..request };
        text::text(&explanation::Explanation::new(rules, &in_force.text, request, hashers, now))
    });
    anstream::adapter::strip_str(&text).to_string().lines().map(str::to_owned).collect()
}

/// The members of the explanation, without braces.
fn of(explanation: &Explanation, lines: &[String], state: &ServerState) -> String {
    let Explanation { answer, exception, rules } = explanation;
    let exception = exception.as_ref().map(|exception| {
        let Origin { file, line } = &exception.origin;
        json!({ "reason": exception.reason, "file": file, "line": line })
    });
    let (decision, undecided) = match answer {
        Ok(decision) => (decision.to_json(), Value::Null),
        Err(error) => ("null".to_owned(), json!(error.to_string())),
    };
    let (exception, rules) =
        (json!(exception), rules.iter().map(|rule| of_rule(rule, state)).collect::<Value>());
    let lines = json!(lines);
    format!(
        r#""decision":{decision},"undecided":{undecided},"exception":{exception},"rules":{rules},"lines":{lines}"#
    )
}

fn of_rule(rule: &RuleExplanation, state: &ServerState) -> Value {
    let in_force = state.rules.in_force();
    let Origin { file, line } = rule.written_at();
    let (counts, none_of) = match &rule.subject {
        Ok(counted) => (Some(counted.kinds().collect::<Vec<_>>()), None),
        Err(chain) => (None, Some(chain)),
    };
    json!({
        "rule": rule.id(),
        "description": rule.rule.description,
        "applies": rule.applies,
        "unmet": rule.unmet.iter().map(|condition| json!(condition.attribute)).collect::<Value>(),
        "counts": counts,
        "none_of": none_of,
        "subject": rule.subject_hash.map(|subject| subject.prefix()),
        "algorithm": rule.limit().algorithm().map(|algorithm| algorithm.name()),
        "override": rule.changed_by.as_ref().map(|change| of_override(change, &in_force.text)),
        "limit_at": { "file": file, "line": line, "override": rule.changed_by.is_some() },
        "cost": rule.cost.cost,
        "cost_failed": rule.cost.failed,
        "mode": mode(rule.rule.mode),
        "in_rollout": rule.in_rollout,
        "blocking": rule.blocking,
        "accounts": rule.accounts.iter().map(of_account).collect::<Value>(),
        "shards": rule.all_shards.as_ref().map(|all| of_shards(rule, all)),
        "layers": rule.layers.iter().map(|view| json!(layer_sentence(view))).collect::<Value>(),
    })
}

/// The shards of a rule together. `accounts` has the numbers of the one that the request asks.
fn of_shards(rule: &RuleExplanation, all: &RuleUsage) -> Value {
    json!({
        "count": rule.rule.shards.map(Shards::count),
        "limit": all.limit,
        "used": all.used,
        "remaining": all.remaining,
    })
}

fn of_account(account: &Account) -> Value {
    let numbers = account.outcome.numbers;
    let retry_after_ms = numbers.and_then(|numbers| match numbers.retry_after {
        RetryAfter::Ms(ms) => Some(ms),
        RetryAfter::Never => None,
    });
    let now_ms = numbers.map(|numbers| numbers.reset_at_ms.saturating_sub(numbers.reset_after_ms));
    json!({
        "retry_after_ms": retry_after_ms,
        "retry_at_ms": now_ms.zip(retry_after_ms).map(|(now_ms, wait_ms)| now_ms.saturating_add(wait_ms)),
        "allowed": account.outcome.allowed,
        "before": account.before.as_ref().map(of_numbers),
        "after": account.after.as_ref().map(of_numbers),
    })
}

fn of_numbers(explained: &ExplainedNumbers) -> Value {
    let ExplainedNumbers { numbers, why } = explained;
    json!({
        "limit": numbers.limit,
        "remaining": numbers.remaining,
        "reset_at_ms": numbers.reset_at_ms,
        "why": why.iter().map(|reason| json!(reason.to_string())).collect::<Value>(),
    })
}
