//! `/v1/ledger/...`: what the ledger has recorded, the heads of its chains, and corrections.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::{StatusCode, header};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::timeout;
use tollgate::core::rules::{Planned, Request};
use tollgate::core::{Time, Token};
use tollgate::ledger::account_of;
use tollgate::{Clock, SystemClock};
use tollgate_database::ledger::{Change, Id, Kind, Record};
use tollgate_database::{Database, Error, Filter};

use super::changes::{self, is_trial, query};
use crate::failure::error_chain;
use crate::ledger_form::{entry_json, head_json, instant_text, subject_id, subject_text, usage_json};
use crate::serve::control::{Audited, now_us, spec};
use crate::serve::edge::auth::{Caller, Peer};
use crate::serve::edge::error::EdgeError;
use crate::serve::edge::http::error::HttpError;
use crate::serve::edge::http::response::{self, HttpResponse, NO_STORE};
use crate::serve::edge::request::CheckRequest;
use crate::serve::server_state::ServerState;

const LIMIT_DEFAULT: i64 = 100;
const LIMIT_MAX: i64 = 1_000;
/// Largest change of an allowance: no sum of a few leaves 64 bits.
const UNITS_MAX: i64 = 1 << 53;
/// How long the database may take.
const STEP_MAX: Duration = Duration::from_secs(5);
/// Parameters that choose accounts. Names of accounts are values, which do not belong in URLs.
const FILTER: [&str; 6] = ["rule", "subject", "from", "to", "limit", "after"];

/// A correction or a grant.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CorrectionBody {
    rule: String,
    attributes: BTreeMap<String, String>,
    units: i64,
    reason: String,
    #[serde(default)]
    kind: CorrectionKind,
    /// An instant in the period; now if it is missing.
    at: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum CorrectionKind {
    #[default]
    Correct,
    Grant,
}

/// The balances of accounts.
pub(super) async fn usage(parts: &Parts, state: &ServerState) -> Result<HttpResponse, HttpError> {
    let query = query(parts, &FILTER)?;
    let (filter, limit) = (filter(&query)?, limit(&query)?);
    let skip: i64 = parameter(&query, "after", "a whole number", |skip: &i64| *skip >= 0)?.unwrap_or(0);
    let accounts = asked(database(state)?.usage(&filter, skip, limit)).await?;
    let next = (accounts.len() as i64 == limit).then(|| skip.saturating_add(limit));
    let accounts: Vec<Value> = accounts.iter().map(usage_json).collect();
    Ok(answered(StatusCode::OK, &json!({ "accounts": accounts, "next": next })))
}

/// Entries in the order of writers and numbers.
pub(super) async fn entries(parts: &Parts, state: &ServerState) -> Result<HttpResponse, HttpError> {
    let query = query(parts, &FILTER)?;
    let (filter, limit) = (filter(&query)?, limit(&query)?);
    let after = parameter(&query, "after", "the `next` of an earlier answer", |_: &Position| true)?;
    let Position(writer, seq, n) = after.unwrap_or(Position(Id([0; 16]), -1, -1));
    let entries = asked(database(state)?.page(&filter, (writer, seq, n), limit)).await?;
    let last = entries.last().filter(|_| entries.len() as i64 == limit);
    let next = last.map(|last| format!("{}:{}:{}", last.writer, last.entry.seq, last.entry.n));
    let entries: Vec<Value> = entries.iter().map(entry_json).collect();
    Ok(answered(StatusCode::OK, &json!({ "entries": entries, "next": next })))
}

/// The heads of all chains, to be kept where the database's administrators cannot write.
pub(super) async fn heads(parts: &Parts, state: &ServerState) -> Result<HttpResponse, HttpError> {
    query(parts, &[])?;
    let writers = asked(database(state)?.writers()).await?;
    let heads: Vec<Value> = writers.iter().map(head_json).collect();
    Ok(answered(StatusCode::OK, &json!({ "at": instant_text(now_us()), "writers": heads })))
}

/// Changes the allowance of one account.
pub(super) async fn correct(
    parts: &Parts,
    body: &[u8],
    (peer, caller): (&Peer, &Caller),
    state: &ServerState,
) -> Result<HttpResponse, HttpError> {
    let is_trial = is_trial(parts)?;
    let body: CorrectionBody = changes::read(body)?;
    let reason = spec::reason(Some(&body.reason)).map_err(|error| changes::failed(error.into()))?;
    let kind = match body.kind {
        CorrectionKind::Grant if body.units <= 0 => {
            let detail = "a grant adds units; send a positive number, or kind `correct`";
            return Err(HttpError::bad_request("bad-request", detail));
        }
        _ if body.units == 0 || body.units.unsigned_abs() > UNITS_MAX.unsigned_abs() => {
            let detail = format!("`units` must be a number other than 0, from -{UNITS_MAX} to {UNITS_MAX}");
            return Err(HttpError::bad_request("bad-request", detail));
        }
        CorrectionKind::Grant => Kind::Grant,
        CorrectionKind::Correct => Kind::Correct,
    };
    let database = database(state)?;
    let template = template(&body, state)?;
    let account = template.account.clone();
    let mut number = None;
    if !is_trial {
        if let Some(control) = &state.control {
            // The row comes first: a correction without a row must not happen.
            let audited = Audited {
                actor: caller.name(),
                address: peer.address.to_string(),
                action: kind.name(),
                target: &body.rule,
                reason,
                detail: json!({
                    "subject": subject_text(&account), "period": instant_text(account.period_us), "units": body.units,
                })
                .to_string(),
                ..Audited::default()
            };
            control.audit_now(audited).await.map_err(changes::failed)?;
        }
        let change = Change { units: body.units, actor: caller.name().to_owned(), cause: reason.to_owned() };
        number = Some(asked(database.change(&template, kind, change, now_us())).await?);
    }
    let mut balances = asked(database.balances(vec![account.clone()])).await?;
    let balance = balances.remove(&account).unwrap_or_default();
    let mut answer = json!({
        "rule": body.rule, "subject": subject_text(&account), "period": instant_text(account.period_us),
        "kind": kind.name(), "units": body.units, "number": number,
        "granted": balance.granted(), "used": balance.posted, "held": balance.pending,
        "available": balance.available(),
    });
    if is_trial {
        answer["dry_run"] = json!(true);
        return Ok(answered(StatusCode::OK, &answer));
    }
    Ok(answered(StatusCode::CREATED, &answer))
}

/// The account of the rule and the attributes.
fn template(body: &CorrectionBody, state: &ServerState) -> Result<Record, HttpError> {
    let mut request = CheckRequest::new();
    for (name, value) in &body.attributes {
        request.add(name, value).map_err(EdgeError::from)?;
    }
    let now = SystemClock.now();
    let at = match &body.at {
        None => now,
        Some(text) => {
            let read = text.parse::<Timestamp>().ok().and_then(|at| u64::try_from(at.as_microsecond()).ok());
            let invalid = "`at` must be an instant like 2026-12-01T00:00:00Z";
            Time::from_us(read.ok_or_else(|| HttpError::bad_request("bad-request", invalid))?)
        }
    };
    let request = Request { cost: 0, token: Token(1), ..request.request() };
    let found = state.gate.with_rules(|rules| {
        let planned = rules.plan(&request, state.gate.hashers(), at);
        let Ok(Planned::Plan { plan, .. }) = planned else { return None };
        let mut items = plan.items().iter();
        let item = items.find(|item| item.ledger.is_some() && item.key.keyspace().rule() == body.rule)?;
        Some(account_of(item, at))
    });
    found.ok_or_else(|| {
        let detail =
            "no rule with this id and a `ledger` matches the attributes; POST /v1/explain shows which match";
        HttpError::new(StatusCode::UNPROCESSABLE_ENTITY, "nothing-matched", detail)
    })
}

/// The position of an entry: its writer, its number, and its index.
struct Position(Id, i64, i64);

impl FromStr for Position {
    type Err = ();

    fn from_str(text: &str) -> Result<Position, ()> {
        let mut parts = text.splitn(3, ':');
        let mut part = || parts.next().ok_or(());
        let writer = Id::from_hex(part()?).ok_or(())?;
        let (seq, n) = (part()?.parse().map_err(drop)?, part()?.parse().map_err(drop)?);
        Ok(Position(writer, seq, n))
    }
}

fn filter(query: &[(String, Cow<'_, str>)]) -> Result<Filter, HttpError> {
    let text = |name: &str| query.iter().find(|(key, _)| key == name).map(|(_, text)| &**text);
    let is_instant = |at: &Timestamp| at.as_microsecond() >= 0;
    let instant = |name| {
        let found = parameter(query, name, "an instant like 2026-12-01T00:00:00Z", is_instant)?;
        Ok::<_, HttpError>(found.map(Timestamp::as_microsecond))
    };
    let subject = text("subject").map(subject_id).transpose();
    Ok(Filter {
        rule: text("rule").map(str::to_owned),
        subject: subject
            .map_err(|hint| HttpError::bad_request("bad-query", format!("bad `subject`; {hint}")))?,
        name: None,
        from_us: instant("from")?,
        to_us: instant("to")?,
        posted_before_us: None,
    })
}

fn limit(query: &[(String, Cow<'_, str>)]) -> Result<i64, HttpError> {
    let what = format!("a number from 1 to {LIMIT_MAX}");
    Ok(parameter(query, "limit", &what, |limit| (1..=LIMIT_MAX).contains(limit))?.unwrap_or(LIMIT_DEFAULT))
}

fn parameter<T: FromStr>(
    query: &[(String, Cow<'_, str>)],
    name: &str,
    what: &str,
    is_valid: impl Fn(&T) -> bool,
) -> Result<Option<T>, HttpError> {
    let Some((_, text)) = query.iter().find(|(key, _)| key == name) else { return Ok(None) };
    let read = text.parse().ok().filter(is_valid);
    let invalid = || HttpError::bad_request("bad-query", format!("`{name}` must be {what}"));
    read.map(Some).ok_or_else(invalid)
}

/// The database of the ledger, if the server has one.
fn database(state: &ServerState) -> Result<Arc<Database>, HttpError> {
    let ledger = state.gate.ledger().ok_or_else(|| {
        let detail = "there is no ledger; start the server with database: sqlite:PATH or postgres://…";
        HttpError::new(StatusCode::CONFLICT, "no-database", detail)
    })?;
    Ok(Arc::clone(ledger.database()))
}

async fn asked<T>(call: impl Future<Output = Result<T, Error>>) -> Result<T, HttpError> {
    let away = |detail| HttpError::new(StatusCode::SERVICE_UNAVAILABLE, "database-unavailable", detail);
    match timeout(STEP_MAX, call).await {
        Ok(Ok(found)) => Ok(found),
        Ok(Err(Error::Overflow { rule })) => {
            let detail = format!("the balance under rule `{rule}` would leave 64 bits; nothing was changed");
            Err(HttpError::new(StatusCode::UNPROCESSABLE_ENTITY, "overflow", detail))
        }
        Ok(Err(error)) => Err(away(error_chain(&error))),
        Err(_) => Err(away("the database did not answer in time".to_owned())),
    }
}

fn answered(status: StatusCode, answer: &Value) -> HttpResponse {
    let mut response = response::json_with(status, answer.to_string());
    response.headers_mut().insert(header::CACHE_CONTROL, NO_STORE);
    response
}
