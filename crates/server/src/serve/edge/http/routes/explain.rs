//! `/v1/explain`: why a check would return what it would return. Charges nothing.
//!
//! Fields name subjects by kind and by the beginning of their hash, as logs do. Only `lines` repeats values that the caller
//! sent.

use serde_json::{Value, json};
use tollgate::core::rules::{Origin, Request};
use tollgate::limiter::{Account, ExplainedNumbers, Explanation, RuleExplanation};
use tollgate::{Clock, SystemClock};

use super::pages::mode;
use crate::explanation::{self, text};
use crate::serve::edge::http::error::HttpError;
use crate::serve::edge::http::request_body::BodyKind;
use crate::serve::edge::http::response::{self, HttpResponse};
use crate::serve::server_state::ServerState;

pub(super) async fn explain(body: &[u8], state: &ServerState) -> Result<HttpResponse, HttpError> {
    let body = BodyKind::Peek.read(body)?;
    let request = body.check_request()?;
    let explanation = state.gate.explain(request.request()).await;
    let lines = lines(request.request(), state);
    Ok(response::json(of(&explanation, &lines)))
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

fn of(explanation: &Explanation, lines: &[String]) -> String {
    let Explanation { answer, exception, rules } = explanation;
    let exception = exception.as_ref().map(|exception| {
        let Origin { file, line } = &exception.origin;
        json!({ "reason": exception.reason, "file": file, "line": line })
    });
    let (decision, undecided) = match answer {
        Ok(decision) => (decision.to_json(), Value::Null),
        Err(error) => ("null".to_owned(), json!(error.to_string())),
    };
    let (exception, rules) = (json!(exception), rules.iter().map(of_rule).collect::<Value>());
    let lines = json!(lines);
    format!(
        r#"{{"decision":{decision},"undecided":{undecided},"exception":{exception},"rules":{rules},"lines":{lines}}}"#
    )
}

fn of_rule(rule: &RuleExplanation) -> Value {
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
        "limit_at": { "file": file, "line": line, "override": rule.changed_by.is_some() },
        "cost": rule.cost.cost,
        "cost_failed": rule.cost.failed,
        "mode": mode(rule.rule.mode),
        "in_rollout": rule.in_rollout,
        "blocking": rule.blocking,
        "accounts": rule.accounts.iter().map(of_account).collect::<Value>(),
    })
}

fn of_account(account: &Account) -> Value {
    json!({
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
