//! `/v1/check` and the paths that answer with a decision.

use bytes::Bytes;
use futures_util::future::join_all;
use http::{HeaderMap, StatusCode};
use tollgate::Decision;
use tollgate::problem::Problem;

use crate::serve::edge::auth::Caller;
use crate::serve::edge::error::EdgeError;
use crate::serve::edge::http::error::HttpError;
use crate::serve::edge::http::request_body::{BodyError, BodyKind};
use crate::serve::edge::http::response::{self, HttpResponse};
use crate::serve::gate::{Edge, Origin};
use crate::serve::server_state::ServerState;

/// Most responses fit into this.
const RESPONSE_LEN: usize = 1_024;

pub(super) async fn check(
    headers: &HeaderMap,
    body: &[u8],
    caller: &Caller,
    state: &ServerState,
) -> Result<HttpResponse, HttpError> {
    let body = BodyKind::Check.read(body)?;
    let request = caller.bind(body.check_request()?).map_err(EdgeError::from)?;
    let origin = Origin::from_headers(Edge::Http, headers);
    let decision = state.gate.check(origin, request.request()).finish().await?;
    Ok(decided(&decision, caller, state, ""))
}

/// Returns what a check would return, and charges nothing.
pub(super) async fn peek(
    body: &[u8],
    caller: &Caller,
    state: &ServerState,
) -> Result<HttpResponse, HttpError> {
    let body = BodyKind::Peek.read(body)?;
    let request = caller.bind(body.check_request()?).map_err(EdgeError::from)?;
    let decision = state.gate.peek(request.request()).await?;
    Ok(decided(&decision, caller, state, ""))
}

/// Makes separate checks, answered in their order. If one of them is invalid, none is made.
pub(super) async fn batch(
    body: &[u8],
    caller: &Caller,
    state: &ServerState,
) -> Result<HttpResponse, HttpError> {
    let bodies = BodyKind::Check.read_list(body)?;
    let requests = bodies
        .iter()
        .map(|body| Ok(caller.bind(body.check_request()?)?))
        .collect::<Result<Vec<_>, BodyError>>()?;
    let work = &state.work.enter(caller, requests.len()).map_err(EdgeError::from)?;
    let checks = requests.iter().map(|request| async move {
        let _turn = work.turn_of_one().await.map_err(EdgeError::from)?;
        Ok::<_, HttpError>(state.gate.check(Edge::Http, request.request()).finish().await?)
    });
    let decisions = join_all(checks).await;
    let mut json = String::with_capacity(RESPONSE_LEN * decisions.len());
    json.push('[');
    for (index, decision) in decisions.into_iter().enumerate() {
        if index > 0 {
            json.push(',');
        }
        match decision {
            Ok(decision) => {
                let status = if decision.allowed() { r#""status":200"# } else { "" };
                let reference = state.gate.reference(&decision);
                write(&mut json, &decision, caller, state, status, reference.as_deref());
            }
            Err(error) => json.push_str(&error.document()),
        }
    }
    json.push(']');
    Ok(response::json(json))
}

/// The decision as a response. A refusal is a problem document with the members of the decision.
pub(super) fn decided(
    decision: &Decision,
    caller: &Caller,
    state: &ServerState,
    member: &str,
) -> HttpResponse {
    let mut json = String::with_capacity(RESPONSE_LEN);
    let reference = state.gate.reference(decision);
    let status = write(&mut json, decision, caller, state, member, reference.as_deref());
    let mut response = match status {
        StatusCode::OK => response::json(Bytes::from(json)),
        refused => response::problem(refused, json),
    };
    response::add_reference(response.headers_mut(), reference);
    response::add_limit_headers(response.headers_mut(), state.dialect, decision);
    response
}

/// Writes the decision as an object that begins with `member`, and returns its status.
fn write(
    json: &mut String,
    decision: &Decision,
    caller: &Caller,
    state: &ServerState,
    member: &str,
    reference: Option<&str>,
) -> StatusCode {
    json.push('{');
    json.push_str(member);
    let problem = Problem::of_refusal(decision);
    if let Some(problem) = &problem {
        problem.write_json_members(json);
    }
    decision.write_json_members(json);
    if let Some(reference) = reference {
        // A reference needs no escapes.
        json.push_str(r#","ref":""#);
        json.push_str(reference);
        json.push('"');
    }
    json.push_str(r#","receipt":"#);
    match state.gate.seal(decision, caller) {
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

#[cfg(test)]
mod cost;
