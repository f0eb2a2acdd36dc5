//! Posts a batch: each record changes balances once, in whatever order the records of different writers arrive.

use super::record::{Change, Detail, Event, HoldState, Id, Kind, Record, Request, RequestState};
use super::rows::{Balance, Entry, Hold, RequestRow, Rows};
use crate::Error;

/// Causes of entries that post nothing.
const DUPLICATE: &str = "duplicate";
const SHARED: &str = "shared";
const UNKNOWN: &str = "unknown";

/// What posting must know besides the rows.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How long the store remembers a request id.
    pub horizon_us: i64,
}

/// The result of a batch.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Posted {
    /// Rows to insert, ordered by sequence number.
    pub entries: Vec<Entry>,
    /// Records that posted nothing because their request was already posted.
    pub duplicates: u64,
    /// Numbers of the corrections and grants, in order.
    pub changes: Vec<i64>,
}

/// Changes of a balance.
#[derive(Clone, Copy, Default)]
struct Delta {
    posted: i64,
    pending: i64,
    granted: i64,
    cause: &'static str,
}

impl Delta {
    fn posted(posted: i64) -> Delta {
        Delta { posted, ..Delta::default() }
    }

    fn pending(pending: i64) -> Delta {
        Delta { pending, ..Delta::default() }
    }

    fn nothing(cause: &'static str) -> Delta {
        Delta { cause, ..Delta::default() }
    }
}

/// Posts the records of one writer that follow the sequence number `after`. `now_us` numbers corrections and grants.
///
/// `rows` must hold every row that exists of [`Keys::of`](super::Keys::of) the records. On an error it is half changed and must not be
/// written.
pub fn post(
    rows: &mut Rows,
    after: i64,
    records: &[Record],
    settings: Settings,
    now_us: i64,
) -> Result<Posted, Error> {
    let mut posted = Posted::default();
    for (record, seq) in records.iter().zip(after + 1..) {
        let delta = match duplicate(rows, record, settings) {
            true => Delta::nothing(DUPLICATE),
            false => apply(rows, record, now_us)?,
        };
        posted.duplicates += u64::from(delta.cause == DUPLICATE);
        book(rows, record, delta)?;
        if matches!(record.event, Event::Correct(_) | Event::Grant(_)) {
            posted.changes.push(rows.balances[&record.account].extra_no);
        }
        let entry = entry(record, seq, delta);
        if record.detail == Detail::Entries {
            rows.voided.insert(seq, entry.clone());
        }
        push(&mut posted.entries, entry, record.detail);
    }
    Ok(posted)
}

/// Whether the record answers a request that was already posted. Remembers the request.
fn duplicate(rows: &mut Rows, record: &Record, settings: Settings) -> bool {
    let Some(request) = record.request else { return false };
    if matches!(record.event, Event::Void { .. }) {
        return false;
    }
    let key = (record.account.subject.clone(), request.id);
    let Some(row) = rows.requests.get_mut(&key) else {
        rows.requests.insert(key, held(record, request));
        return false;
    };
    let near = row.at_us.abs_diff(record.at_us) <= settings.horizon_us.unsigned_abs();
    let same = row.nonce == request.nonce || (row.content == request.content && near);
    if same && row.state != RequestState::Void {
        // A second answer was given, so a void of either answer must not take the charge back.
        row.state = RequestState::Shared;
        return true;
    }
    *row = held(record, request);
    false
}

fn held(record: &Record, request: Request) -> RequestRow {
    let Request { nonce, content, .. } = request;
    RequestRow { nonce, content, at_us: record.at_us, state: RequestState::Held }
}

fn apply(rows: &mut Rows, record: &Record, now_us: i64) -> Result<Delta, Error> {
    Ok(match record.event {
        Event::Use { cost } | Event::Local { cost } => Delta::posted(cost),
        Event::Opening { used } | Event::Carry { used } => Delta::posted(used),
        Event::Credit { amount } => Delta::posted(-amount),
        Event::Reserve { token, cost, until_us } | Event::Extend { token, more: cost, until_us } => {
            hold(rows, record, token, cost, until_us)?
        }
        Event::Settle { token, actual, until_us } => {
            let before = end(rows, record, token, HoldState::Settled, until_us);
            match before {
                Ended::From(pending) => Delta { posted: actual, pending: -pending, ..Delta::default() },
                Ended::Already => Delta::nothing(DUPLICATE),
            }
        }
        Event::Cancel { token } => match end(rows, record, token, HoldState::Cancelled, record.at_us) {
            Ended::From(pending) => Delta::pending(-pending),
            Ended::Already => Delta::nothing(UNKNOWN),
        },
        Event::Expire { token } => match end(rows, record, token, HoldState::Expired, record.at_us) {
            Ended::From(pending) => Delta::pending(-pending),
            Ended::Already => Delta::nothing(UNKNOWN),
        },
        Event::Refund { receipt, charged, amount } => {
            let key = (record.account.subject.clone(), receipt);
            let refunded = rows.receipts.entry(key).or_default();
            let amount = amount.min(charged - *refunded).max(0);
            *refunded += amount;
            Delta::posted(-amount)
        }
        Event::Void { seq } => void(rows, record, seq),
        Event::Correct(ref change) | Event::Grant(ref change) => {
            let balance = rows.balances.entry(record.account.clone()).or_default();
            // A ledger that was set back never uses a number again that the gate has seen.
            balance.extra_no = (balance.extra_no + 1).max(now_us);
            Delta { granted: change.units, ..Delta::default() }
        }
    })
}

/// Adds units to a hold. One that has already ended keeps its state and posts nothing.
fn hold(rows: &mut Rows, record: &Record, token: Id, cost: i64, until_us: i64) -> Result<Delta, Error> {
    let key = (record.account.clone(), token);
    match rows.holds.get_mut(&key) {
        None => {
            rows.holds.insert(key, Hold { cost, until_us, state: HoldState::Open });
        }
        Some(hold) if hold.state == HoldState::Open => {
            hold.cost = hold.cost.checked_add(cost).ok_or_else(|| overflow(record))?;
            hold.until_us = hold.until_us.max(until_us);
        }
        Some(_) => return Ok(Delta::nothing("ended")),
    }
    Ok(Delta::pending(cost))
}

/// Whether a hold changed its state.
enum Ended {
    /// It did; holds the units that were pending.
    From(i64),
    /// The transition is not allowed: the hold has ended before.
    Already,
}

/// Moves a hold to a final state: none | open | expired -> settled, none | open -> cancelled, none | open -> expired.
///
/// Entries of different servers arrive in any order, so the end of a hold may arrive before its reserve, which posts nothing
/// then.
fn end(rows: &mut Rows, record: &Record, token: Id, to: HoldState, until_us: i64) -> Ended {
    let key = (record.account.clone(), token);
    match rows.holds.get_mut(&key) {
        None => {
            rows.holds.insert(key, Hold { cost: 0, until_us, state: to });
            Ended::From(0)
        }
        Some(hold) => {
            let pending = match (hold.state, to) {
                (HoldState::Open, _) => hold.cost,
                (HoldState::Expired, HoldState::Settled) => 0,
                _ => return Ended::Already,
            };
            hold.state = to;
            Ended::From(pending)
        }
    }
}

/// Takes back what the entry `seq` of the same writer posted, unless another answer relies on it. The writer voids an entry
/// at most once.
fn void(rows: &mut Rows, record: &Record, seq: i64) -> Delta {
    let Some(entry) = rows.voided.get(&seq).cloned() else { return Delta::nothing(UNKNOWN) };
    if let Some(request) = record.request {
        let key = (record.account.subject.clone(), request.id);
        if let Some(row) = rows.requests.get_mut(&key).filter(|row| row.nonce == request.nonce) {
            match row.state {
                RequestState::Held => row.state = RequestState::Void,
                RequestState::Shared => return Delta::nothing(SHARED),
                RequestState::Void => return Delta::nothing(DUPLICATE),
            }
        }
    }
    undo(rows, &entry)
}

fn undo(rows: &mut Rows, entry: &Entry) -> Delta {
    let mut delta = Delta { posted: -entry.d_posted, pending: -entry.d_pending, ..Delta::default() };
    let Some(token) = entry.token else { return delta };
    if entry.kind == Kind::Refund {
        if let Some(refunded) = rows.receipts.get_mut(&(entry.account.subject.clone(), token)) {
            *refunded += entry.d_posted;
        }
        return delta;
    }
    let Some(hold) = rows.holds.get_mut(&(entry.account.clone(), token)) else {
        return Delta::nothing(UNKNOWN);
    };
    let posted_something = entry.d_posted != 0 || entry.d_pending != 0;
    match (entry.kind, hold.state) {
        (Kind::Reserve | Kind::Extend, HoldState::Open) => {
            hold.cost -= entry.d_pending;
            if entry.kind == Kind::Reserve {
                // Extensions of a reservation that no caller got are given back with it.
                delta.pending -= hold.cost;
                hold.cost = 0;
                hold.state = HoldState::Cancelled;
            }
        }
        // What it held was given back when the reservation ended.
        (Kind::Reserve | Kind::Extend, _) => return Delta::nothing("ended"),
        (Kind::Settle | Kind::Late, HoldState::Settled) | (Kind::Cancel, HoldState::Cancelled)
            if posted_something || entry.cause.is_empty() =>
        {
            hold.state = if entry.d_pending < 0 { HoldState::Open } else { HoldState::Expired };
        }
        _ => {}
    }
    delta
}

/// Changes the balance of the record's account.
fn book(rows: &mut Rows, record: &Record, delta: Delta) -> Result<(), Error> {
    let balance = rows.balances.entry(record.account.clone()).or_default();
    let newest = (record.at_us, record.allowance) >= (balance.allowance_at_us, balance.allowance);
    let next = (|| {
        let (allowance, allowance_at_us) = match newest {
            true => (record.allowance, record.at_us),
            false => (balance.allowance, balance.allowance_at_us),
        };
        let next = Balance {
            ends_us: balance.ends_us.max(record.ends_us),
            allowance,
            allowance_at_us,
            extra: balance.extra.checked_add(delta.granted)?,
            extra_no: balance.extra_no,
            pending: balance.pending.checked_add(delta.pending)?,
            posted: balance.posted.checked_add(delta.posted)?,
        };
        let granted = next.allowance.checked_add(next.extra)?;
        granted.checked_sub(next.pending)?.checked_sub(next.posted)?;
        Some(next)
    })();
    *balance = next.ok_or_else(|| overflow(record))?;
    Ok(())
}

fn overflow(record: &Record) -> Error {
    Error::Overflow { rule: record.account.subject.rule.to_string() }
}

fn entry(record: &Record, seq: i64, delta: Delta) -> Entry {
    let (actor, reason) = match &record.event {
        Event::Correct(Change { actor, cause, .. }) | Event::Grant(Change { actor, cause, .. }) => {
            (actor.clone(), cause.clone())
        }
        _ => (String::new(), delta.cause.to_owned()),
    };
    let token = match record.event {
        Event::Refund { receipt, .. } => Some(receipt),
        _ => record.token(),
    };
    Entry {
        seq,
        n: 0,
        kind: record.kind(),
        account: record.account.clone(),
        at_us: record.at_us,
        rev: record.rev,
        d_posted: delta.posted,
        d_pending: delta.pending,
        d_granted: delta.granted,
        token,
        request: record.request.map(|request| request.id),
        nonce: record.request.map(|request| request.nonce),
        cause: reason,
        actor,
    }
}

/// Appends the entry, or folds it into the row of the same second, account and kind.
fn push(entries: &mut Vec<Entry>, entry: Entry, detail: Detail) {
    if detail == Detail::Entries {
        return entries.push(entry);
    }
    let second = |at_us: i64| at_us.div_euclid(1_000_000);
    let same = |row: &&mut Entry| {
        row.cause == TOTAL
            && row.kind == entry.kind
            && row.account == entry.account
            && second(row.at_us) == second(entry.at_us)
    };
    match entries.iter_mut().find(same) {
        Some(row) => {
            // The sums of all rows are within the balance, which was checked.
            row.d_posted = row.d_posted.saturating_add(entry.d_posted);
            row.d_pending = row.d_pending.saturating_add(entry.d_pending);
            (row.at_us, row.rev) = (row.at_us.max(entry.at_us), row.rev.max(entry.rev));
        }
        None => {
            entries.push(Entry { token: None, request: None, nonce: None, cause: TOTAL.to_owned(), ..entry })
        }
    }
}

/// The cause of a row that stands for several events.
const TOTAL: &str = "total";
