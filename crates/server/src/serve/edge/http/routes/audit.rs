//! `/v1/audit`: the audit trail, page by page.

use http::request::Parts;
use http::{HeaderValue, header};
use jiff::Timestamp;
use serde_json::{Value, json};
use tollgate_database::audit::AuditRow;

use super::changes::{self, query};
use crate::hex;
use crate::serve::edge::http::error::HttpError;
use crate::serve::edge::http::response::{self, HttpResponse, NO_STORE};
use crate::serve::server_state::ServerState;

const LIMIT_DEFAULT: i64 = 100;
const LIMIT_MAX: i64 = 1_000;

/// The rows after a number, oldest first, and the end of the trail.
pub(super) async fn page(parts: &Parts, state: &ServerState) -> Result<HttpResponse, HttpError> {
    let query = query(parts, &["after", "limit"])?;
    let number = |name: &'static str, default: i64, allowed: std::ops::RangeInclusive<i64>| {
        let Some((_, text)) = query.iter().find(|(key, _)| key == name) else { return Ok(default) };
        text.parse().ok().filter(|number| allowed.contains(number)).ok_or_else(|| {
            let detail = format!("`{name}` must be a number from {} to {}", allowed.start(), allowed.end());
            HttpError::bad_request("bad-query", detail)
        })
    };
    let after = number("after", 0, 0..=i64::MAX)?;
    let limit = number("limit", LIMIT_DEFAULT, 1..=LIMIT_MAX)?;
    let control = changes::control(state)?;
    let (rows, head) = control.audit_page(after, limit).await.map_err(changes::failed)?;
    let rows: Vec<Value> = rows.iter().map(row_json).collect();
    let page = json!({ "rows": rows, "head": { "seq": head.seq, "hash": hex::of(&head.hash) } });
    let mut response = response::json(page.to_string());
    response.headers_mut().insert(header::CACHE_CONTROL, NO_STORE);
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    Ok(response)
}

fn row_json(row: &AuditRow) -> Value {
    let event = &row.event;
    let at = Timestamp::from_microsecond(event.at_us).unwrap_or(Timestamp::UNIX_EPOCH);
    json!({
        "seq": row.seq,
        "at": at.to_string(),
        "at_us": event.at_us,
        "times": event.times,
        "server": event.server,
        "actor": event.actor,
        "address": event.address,
        "action": event.action,
        "target": event.target,
        "reason": event.reason,
        "detail": event.detail,
        "before": event.before,
        "after": event.after,
        "prev": hex::of(&row.prev),
        "hash": hex::of(&row.hash),
    })
}
