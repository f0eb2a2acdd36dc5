//! `GET /v1/top`: the subjects that were refused most, or that are nearest to their limit.

use std::cmp::Reverse;

use http::StatusCode;
use serde_json::{Value, json};
use tollgate::{Clock, SystemClock};

use super::answered;
use crate::serve::edge::http::error::HttpError;
use crate::serve::edge::http::response::{HttpResponse, NO_STORE};
use crate::serve::observe::{By, CountedSubject, NearSubject, PERIOD_S, SUBJECTS_MAX};
use crate::serve::server_state::ServerState;

/// Subjects in an answer, if the query does not say.
const LIMIT_DEFAULT: usize = 20;
const LIMIT_MAX: usize = 1_000;

/// What the query asks for.
#[derive(Debug)]
struct Query<'q> {
    by: By,
    rule: Option<&'q str>,
    limit: usize,
}

pub(super) fn top(query: &str, state: &ServerState) -> Result<HttpResponse, HttpError> {
    let query = Query::read(query)?;
    if let Some(rule) = query.rule
        && state.gate.with_rules(|rules| rules.find(rule).is_none())
    {
        let detail = "no rule has this id; GET /v1/rules lists all";
        return Err(HttpError::new(StatusCode::UNPROCESSABLE_ENTITY, "unknown-rule", detail));
    }
    let now_ms = SystemClock.now().us() / 1_000;
    let mut untracked = 0_u64;
    let mut subjects: Vec<(u64, Value)> = Vec::new();
    let each = state.gate.recorder().each_subjects(|rule, lists| {
        untracked += u64::from(lists.is_untracked());
        if query.rule.is_some_and(|wanted| wanted != rule) {
            return Vec::new();
        }
        match query.by {
            By::Used => {
                lists.nearest(now_ms).iter().take(query.limit).map(|near| of_near(rule, near)).collect()
            }
            by => lists.counted(by).iter().map(|counted| of_counted(rule, counted)).collect::<Vec<_>>(),
        }
    });
    subjects.extend(each.into_iter().flatten());
    subjects.sort_by_key(|(order, _)| Reverse(*order));
    subjects.truncate(query.limit);
    let mut response = answered(&json!({
        "by": name(query.by),
        "now_ms": now_ms,
        "period_s": PERIOD_S,
        "server": state.gate.references().server(),
        "hash_key": super::explain::hash_key(state),
        "subjects_max": SUBJECTS_MAX,
        "rules_without_lists": untracked,
        "subjects": subjects.into_iter().map(|(_, subject)| subject).collect::<Value>(),
    }));
    response.headers_mut().insert(http::header::CACHE_CONTROL, NO_STORE);
    Ok(response)
}

fn of_counted(rule: &str, counted: &CountedSubject) -> (u64, Value) {
    let CountedSubject { subject, shown, count, error } = counted;
    let of = json!({
        "rule": rule, "subject": subject.prefix(), "show": shown, "count": count, "error": error,
    });
    (*count, of)
}

fn of_near(rule: &str, near: &NearSubject) -> (u64, Value) {
    let NearSubject { subject, shown, limit, remaining, reset_at_ms } = near;
    let used_permille = near.used_permille();
    let of = json!({
        "rule": rule,
        "subject": subject.prefix(),
        "show": shown,
        "used_permille": used_permille,
        "limit": limit,
        "remaining": remaining,
        "reset_at_ms": reset_at_ms,
    });
    (used_permille, of)
}

const fn name(by: By) -> &'static str {
    match by {
        By::Refused => "refused",
        By::ShadowRefused => "shadow-refused",
        By::Used => "used",
    }
}

impl<'q> Query<'q> {
    fn read(query: &'q str) -> Result<Query<'q>, HttpError> {
        let mut read = Query { by: By::Refused, rule: None, limit: LIMIT_DEFAULT };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("by", "refused")) => read.by = By::Refused,
                Some(("by", "shadow-refused")) => read.by = By::ShadowRefused,
                Some(("by", "used")) => read.by = By::Used,
                // Ids of rules have no character that a query escapes.
                Some(("rule", rule)) => read.rule = Some(rule),
                Some(("limit", limit)) => {
                    let limit = limit.parse().ok().filter(|limit| (1..=LIMIT_MAX).contains(limit));
                    read.limit = limit.ok_or_else(|| {
                        HttpError::bad_request(
                            "bad-query",
                            format!("limit must be a number from 1 to {LIMIT_MAX}"),
                        )
                    })?;
                }
                _ => {
                    let known = "by=refused, by=used, by=shadow-refused, rule=ID, limit=N";
                    return Err(HttpError::bad_request(
                        "bad-query",
                        format!("unknown query; known are {known}"),
                    ));
                }
            }
        }
        Ok(read)
    }
}
