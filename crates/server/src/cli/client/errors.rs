//! What the answers of servers mean for the user, and for the exit code.

use std::io::ErrorKind;
use std::time::Duration;

use http::StatusCode;
use serde_json::Value;

use super::call::{Answer, Call};
use super::connection::ExchangeError;
use super::server_url::ServerUrl;
use crate::failure::{Failure, error_chain};
use crate::text::excerpt;

/// Characters of a server's text that are shown.
const DETAIL_CHARS_MAX: usize = 600;

/// The server did not answer.
pub(super) fn unanswered(server: &ServerUrl, error: &ExchangeError) -> Failure {
    let hint = match error {
        ExchangeError::Connect(cause) if cause.kind() == ErrorKind::ConnectionRefused => {
            "check that the server runs, and host and port in --server or TOLLGATE_SERVER"
        }
        ExchangeError::Connect(_) => "check host and port in --server or TOLLGATE_SERVER",
        ExchangeError::Tls(_) => {
            "pass the CA certificate of the server with --ca-file; write http:// if the server has no TLS"
        }
        ExchangeError::Http(_) => {
            "write https:// if the server uses TLS; check that --server names its HTTP port"
        }
        _ => "check that --server names a Tollgate server",
    };
    Failure::of_store(format!("{server} did not answer: {}", error_chain(error)), hint)
}

/// The server did not answer in time.
pub(super) fn late(server: &ServerUrl, timeout: Duration) -> Failure {
    let what = format!("{server} did not answer within {timeout:?}");
    Failure::of_store(what, "the server or the network is slow; pass a longer --timeout")
}

/// The server answered with an error.
pub(super) fn of_status(server: &ServerUrl, call: &Call, answer: &Answer, has_token: bool) -> Failure {
    let status = answer.status;
    let problem: Value = serde_json::from_slice(&answer.body).unwrap_or(Value::Null);
    let text = |member: &str| problem[member].as_str().map(|text| excerpt(text, DETAIL_CHARS_MAX));
    let reason = text("detail").or_else(|| text("title"));
    let reason = reason.unwrap_or_else(|| status.canonical_reason().unwrap_or("no reason").to_owned());
    let code = text("code").map(|code| format!(" ({code})")).unwrap_or_default();
    let what = format!("{server} answered {}{code}: {reason}", status.as_u16());
    match status {
        _ if problem["code"] == "lowers" => {
            Failure::declined(what, "pass --allow-lower if some requests are meant to get less")
        }
        _ if problem["code"] == "no-database" => Failure::declined(
            what,
            "live changes and the audit trail are kept in a database that servers share",
        ),
        _ if problem["code"] == "no-such-change" => Failure::new(
            what,
            "the command `list` shows the ids; a change may have been removed by another caller",
        ),
        StatusCode::UNAUTHORIZED if has_token => {
            Failure::declined(what, "check the token, and that the server's configuration has its digest")
        }
        StatusCode::UNAUTHORIZED => {
            Failure::declined(what, "pass a token with --token-file, TOLLGATE_TOKEN or TOLLGATE_TOKEN_FILE")
        }
        StatusCode::FORBIDDEN => {
            Failure::declined(what, "use a token with this scope; `tollgate token --scopes` makes one")
        }
        StatusCode::MISDIRECTED_REQUEST => {
            Failure::declined(what, "use localhost or an address, or add the host to allowed_hosts")
        }
        StatusCode::PRECONDITION_FAILED | StatusCode::PRECONDITION_REQUIRED => Failure::declined(
            what,
            "another caller changed it meanwhile; show it again, and repeat the change",
        ),
        StatusCode::CONFLICT => Failure::declined(what, "the server says what to set or to change first"),
        StatusCode::TOO_MANY_REQUESTS => {
            Failure::declined(what, "wait, and call again; the server limits calls of operators too")
        }
        StatusCode::NOT_FOUND => {
            let path = call.target.split('?').next().unwrap_or_default();
            let hint = format!(
                "{path} is not there: check the id, and that --server names the listener that serves it (`admin` for changes)"
            );
            Failure::new(what, hint)
        }
        status if status.is_server_error() => Failure::of_store(
            what,
            "the server or its store failed; its log has more, and `tollgate doctor` looks for causes",
        ),
        status if status.is_redirection() => {
            Failure::new(what, "redirections are not followed; name the server itself with --server")
        }
        _ => Failure::new(what, "correct what the server names; `tollgate COMMAND --help` has examples"),
    }
}
