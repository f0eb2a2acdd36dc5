//! What the ledger records of an answered Plan: one record per item that changed an account.

use tollgate_core::algorithm::quota::QuotaPeriod;
use tollgate_core::plan::answer::AnsweredBy;
use tollgate_core::{
    Answer, Item, Key, Limit, Mark, Operation, Outcome, Plan, Recording, Time, Token, Verdict,
};
use tollgate_database::ledger::{Account, Detail, Event, Id, Record, Request, Subject};

/// Returns the records of a Plan that a store has answered.
pub(super) fn records_of(plan: &Plan<'_>, outcome: &Outcome) -> Vec<Record> {
    let refused = plan.items().iter().zip(&outcome.answers);
    let is_refused = refused
        .into_iter()
        .any(|(item, answer)| item.asks_for_admission() && item.blocking && !answer.is_admitted());
    if is_refused {
        return Vec::new();
    }
    let answered = plan.items().iter().zip(&outcome.answers).enumerate();
    let record = |(index, (item, answer))| {
        let rev = outcome.revision(index).number();
        record_of(plan, item, answer, outcome.now).map(|record| Record { rev, ..record })
    };
    answered.filter_map(record).collect()
}

/// Returns the records of a Plan that a failure policy has admitted.
pub(super) fn records_by_policy(plan: &Plan<'_>, outcome: &Outcome) -> Vec<Record> {
    let answered = || plan.items().iter().zip(&outcome.answers);
    if answered().any(|(item, answer)| item.blocking && !answer.is_admitted()) {
        return Vec::new();
    }
    let record = |(item, answer): (&Item<'_>, &Answer)| {
        let recording = item.ledger.filter(|_| matches!(answer.by, AnsweredBy::Policy(_)))?;
        let cost = match item.operation {
            Operation::Charge { cost, .. } | Operation::Reserve { cost, .. } if cost > 0 => units(cost),
            _ => return None,
        };
        let request = request_of(plan, outcome.now);
        Some(described(item, Mark::None, answer, outcome.now, recording, request, Event::Local { cost }))
    };
    answered().filter_map(record).collect()
}

fn record_of(plan: &Plan<'_>, item: &Item<'_>, answer: &Answer, now: Time) -> Option<Record> {
    let recording = item.ledger?;
    let mut request = request_of(plan, now);
    let mut mark = answer.mark;
    let until_us = |mark: Mark| match mark {
        Mark::Held { until, .. } => time(until),
        _ => time(now),
    };
    let event = match (item.operation, answer.verdict) {
        (Operation::Charge { cost, .. }, Verdict::Admitted { .. }) if cost > 0 => {
            Event::Use { cost: units(cost) }
        }
        (Operation::Reserve { cost, token, .. }, Verdict::Admitted { .. }) if cost > 0 => {
            Event::Reserve { token: hold_id(item, token), cost: units(cost), until_us: until_us(mark) }
        }
        (Operation::Extend { token, more, .. }, Verdict::Admitted { .. }) if more > 0 => {
            Event::Extend { token: hold_id(item, token), more: units(more), until_us: until_us(mark) }
        }
        (Operation::Settle { token, .. }, Verdict::Done { amount } | Verdict::BookedLate { amount }) => {
            let token = hold_id(item, token);
            // A settlement can be repeated in another period. Its id finds the first one all the same.
            request = Some(Request { id: derived("settle", token), nonce: token, content: units(amount) });
            let is_late = matches!(answer.verdict, Verdict::BookedLate { .. });
            let until_us = if is_late { time(now) - 1 } else { time(now) };
            Event::Settle { token, actual: units(amount), until_us }
        }
        (Operation::Cancel { token }, Verdict::Done { .. }) => Event::Cancel { token: hold_id(item, token) },
        (Operation::Record { .. }, Verdict::Recorded { amount, .. }) if amount > 0 => {
            Event::Use { cost: units(amount) }
        }
        (Operation::Credit { .. }, Verdict::Done { amount }) if amount > 0 => {
            Event::Credit { amount: units(amount) }
        }
        (Operation::Refund { mark: charged, cost, .. }, Verdict::Done { amount }) if amount > 0 => {
            mark = charged;
            let receipt = plan.request_id().map_or(Id([0; 16]), |request| Id(bytes(request.id.to_u128())));
            Event::Refund { receipt, charged: units(cost), amount: units(amount) }
        }
        _ => return None,
    };
    Some(described(item, mark, answer, now, recording, request, event))
}

/// Returns the subject of an item, as the ledger names it.
pub(super) fn subject_of(key: &Key<'_>) -> Subject {
    let keyspace = key.keyspace();
    let rule = match keyspace.namespace() {
        "default" => keyspace.rule().into(),
        namespace => format!("{namespace}/{}", keyspace.rule()).into(),
    };
    Subject { rule, id: Id(bytes(key.subject().to_u128())) }
}

/// Returns the account that an answer of the gate is about.
pub(super) fn account_at(item: &Item<'_>, answer: &Answer, now: Time) -> Account {
    let (start, _) = period(&item.limit, Mark::None, answer, now);
    Account { subject: subject_of(&item.key), period_us: time(start) }
}

/// Returns a record with the account of an item at `now`, and without an event: the template of a correction or grant.
#[doc(hidden)]
pub fn account_of(item: &Item<'_>, now: Time) -> Record {
    let answer = Answer::not_asked(&item.limit, now);
    described(item, Mark::None, &answer, now, Recording::default(), None, Event::Use { cost: 0 })
}

fn described(
    item: &Item<'_>,
    mark: Mark,
    answer: &Answer,
    now: Time,
    recording: Recording,
    request: Option<Request>,
    event: Event,
) -> Record {
    let (start, end) = period(&item.limit, mark, answer, now);
    let subject = subject_of(&item.key);
    Record {
        account: Account { subject, period_us: time(start) },
        ends_us: time(end),
        allowance: units(item.limit.reported_limit()),
        at_us: time(now),
        rev: 0,
        name: None,
        detail: if recording.totals { Detail::Totals } else { Detail::Entries },
        request,
        event,
    }
}

/// Returns start and end of the period that an answer is about. A meter has one account without an end.
fn period(limit: &Limit, mark: Mark, answer: &Answer, now: Time) -> (Time, Time) {
    let Limit::Quota(quota) = limit else { return (Time::ZERO, Time::ZERO) };
    let charged_in = match mark {
        Mark::Window { start } => Some(start),
        _ => None,
    };
    match quota.period() {
        QuotaPeriod::Calendar(periods) => {
            let at = charged_in.unwrap_or(now);
            periods.containing(at).unwrap_or((at, at))
        }
        QuotaPeriod::Rolling(length) => {
            let before_end = || Time::from_us(answer.reset_at.us().saturating_sub(length.us()));
            let start = charged_in.unwrap_or_else(before_end);
            (start, start.plus(length))
        }
    }
}

/// Returns the request id of a Plan. A store that repeats an answer repeats its time too, so the nonce of a replay is that of
/// the first answer.
fn request_of(plan: &Plan<'_>, now: Time) -> Option<Request> {
    let request = plan.request_id()?;
    let mut hasher = blake3::Hasher::new();
    hasher.update(&request.id.to_u128().to_le_bytes());
    hasher.update(&request.content.to_le_bytes());
    hasher.update(&now.us().to_le_bytes());
    let content = request.content as u64 ^ (request.content >> 64) as u64;
    Some(Request {
        id: Id(bytes(request.id.to_u128())),
        nonce: first_half(&hasher),
        content: content.cast_signed(),
    })
}

/// Returns the name of a reservation in the ledger. A token is a credential and never leaves the process.
fn hold_id(item: &Item<'_>, token: Token) -> Id {
    let mut hasher = blake3::Hasher::new();
    hasher.update(b"hold");
    hasher.update(&item.key.fingerprint().to_le_bytes());
    hasher.update(&token.0.to_le_bytes());
    first_half(&hasher)
}

fn derived(kind: &str, id: Id) -> Id {
    let mut hasher = blake3::Hasher::new();
    hasher.update(kind.as_bytes());
    hasher.update(&id.0);
    first_half(&hasher)
}

fn first_half(hasher: &blake3::Hasher) -> Id {
    let mut id = [0; 16];
    id.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    Id(id)
}

fn bytes(number: u128) -> [u8; 16] {
    number.to_be_bytes()
}

/// Units are at most 2^53 - 1; a limit that never ends is cut.
fn units(units: u64) -> i64 {
    units.min(tollgate_core::EXACT_MAX) as i64
}

fn time(time: Time) -> i64 {
    i64::try_from(time.us()).unwrap_or(i64::MAX)
}
