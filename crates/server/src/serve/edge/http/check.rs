//! `/v1/check` and its kin: may this proceed?

use bytes::Bytes;
use futures_util::future::join_all;
use http::{HeaderMap, StatusCode};
use tollgate::Decision;
use tollgate::core::{Algorithm, Mark};
use tollgate::limiter::CheckError;
use tollgate::problem::Problem;

use super::answer::{self, Answer};
use super::complaint::Complaint;
use super::question::{Form, Question};
use crate::serve::gate::{Edge, Origin};
use crate::serve::shared::Shared;

/// Most answers fit.
const ANSWER_LEN: usize = 1_024;

pub(super) async fn check(headers: &HeaderMap, body: &[u8], shared: &Shared) -> Result<Answer, Complaint> {
    let question = Form::Check.read(body)?;
    let decision = ask(&question, origin(Edge::Http, headers), shared).await?;
    Ok(decided(&decision, shared, ""))
}

/// What a check would answer, with nothing charged.
pub(super) async fn peek(body: &[u8], shared: &Shared) -> Result<Answer, Complaint> {
    let question = Form::Look.read(body)?;
    let attributes = question.attributes();
    let decision = shared.gate.peek(question.request(&attributes)).await?;
    Ok(decided(&decision, shared, ""))
}

/// Each check for itself, answered in their order. If one of them cannot be read, none is made.
pub(super) async fn batch(body: &[u8], shared: &Shared) -> Result<Answer, Complaint> {
    let questions = Form::Check.read_list(body)?;
    let decisions = join_all(questions.iter().map(|question| ask(question, Edge::Http.into(), shared))).await;
    let mut json = String::with_capacity(ANSWER_LEN * decisions.len());
    json.push('[');
    for (index, decision) in decisions.into_iter().enumerate() {
        if index > 0 {
            json.push(',');
        }
        match decision {
            Ok(decision) => {
                let status = if decision.allowed() { r#""status":200"# } else { "" };
                write(&mut json, &decision, shared, status);
            }
            Err(error) => json.push_str(&Complaint::from(error).document()),
        }
    }
    json.push(']');
    Ok(answer::json(json))
}

/// A check that holds a place, until it is given back or has run out.
pub(super) async fn lease(body: &[u8], shared: &Shared) -> Result<Answer, Complaint> {
    let question = Form::Check.read(body)?;
    let attributes = question.attributes();
    let holds = shared.gate.with_rules(|rules| {
        let mut places = rules.matching(&attributes).into_iter();
        places.any(|place| rules.rules()[place as usize].limit.algorithm() == Some(Algorithm::Concurrency))
    });
    if !holds {
        let detail = "no rule with a concurrency limit applies to these attributes, so there is nothing to hold; add \
                      one, or ask /v1/check";
        return Err(Complaint::new(StatusCode::UNPROCESSABLE_ENTITY, "no-lease", detail));
    }
    let decision = ask(&question, Edge::Http.into(), shared).await?;
    let ends = match ends_at_ms(&decision) {
        Some(ends) => format!(r#""expires_at_ms":{ends}"#),
        None => r#""expires_at_ms":null"#.to_owned(),
    };
    Ok(decided(&decision, shared, &ends))
}

/// When the first of its leases runs out; none if it holds none.
fn ends_at_ms(decision: &Decision) -> Option<u64> {
    let ends = decision.receipts().into_iter().filter_map(|receipt| match receipt.mark {
        Mark::Held { until, .. } => Some(until.us() / 1_000),
        _ => None,
    });
    ends.min()
}

async fn ask(question: &Question<'_>, origin: Origin<'_>, shared: &Shared) -> Result<Decision, CheckError> {
    let attributes = question.attributes();
    let request = question.request(&attributes);
    match shared.gate.check_now(origin, request) {
        Some(decided) => decided,
        None => shared.gate.check(origin, request).await,
    }
}

/// Where a question comes from.
pub(super) fn origin(edge: Edge, headers: &HeaderMap) -> Origin<'_> {
    Origin { edge, traceparent: headers.get("traceparent").and_then(|parent| parent.to_str().ok()) }
}

/// The decision, and where the client stands. A refusal is a problem document that has the decision in it.
fn decided(decision: &Decision, shared: &Shared, member: &str) -> Answer {
    let mut json = String::with_capacity(ANSWER_LEN);
    let status = write(&mut json, decision, shared, member);
    let mut answer = match status {
        StatusCode::OK => answer::json(Bytes::from(json)),
        refused => answer::problem(refused, json),
    };
    answer::tell(answer.headers_mut(), shared.dialect, decision);
    answer
}

/// Writes the decision as an object that begins with this member, and says which status it has.
fn write(json: &mut String, decision: &Decision, shared: &Shared, member: &str) -> StatusCode {
    json.push('{');
    json.push_str(member);
    let problem = Problem::of_refusal(decision);
    if let Some(problem) = &problem {
        problem.write_json_members(json);
    }
    decision.write_json_members(json);
    json.push_str(r#","receipt":"#);
    match shared.gate.seal(decision) {
        None => json.push_str("null}"),
        Some(receipt) => {
            json.push('"');
            json.push_str(&receipt);
            json.push_str("\"}");
        }
    }
    let status = problem.map_or(Ok(StatusCode::OK), |problem| StatusCode::from_u16(problem.status));
    status.unwrap_or(StatusCode::TOO_MANY_REQUESTS)
}
