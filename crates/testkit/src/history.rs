//! The history checker: proves from recorded calls alone whether a store kept a limit's guarantees.
//!
//! A concurrent test does not know at which instant a call took effect, only between which two instants. So every record
//! has an interval. The checker reports a violation only if the guarantee is broken wherever in their intervals the calls
//! took effect. It never reports a correct store. How much it detects of an incorrect one depends on how narrow the
//! intervals are.
//!
//! - **Over-admission.** Cost that was certainly admitted in a span (the record's interval is inside it) must not exceed
//!   what the limit allows for the span. [`CallResult::Unknown`] does not count.
//! - **False refusal.** A refusal is justified if everything that may have counted against it leaves no room for it.
//!   [`CallResult::Unknown`] and [`CallResult::Degraded`] count in full.
//! - **Records and credits.** Recorded cost was not admitted: it never counts as over-admission, and in full against
//!   refusals. Limits hold net of credits: the bound of a span grows by all credits that may have come before its end.
//! - **Request ids.** However often an id was admitted, it is one charge.
//!
//! The guarantees by algorithm (`L` limit, `W` window, `b` bucket of a sliding window, `k = W/b`):
//!
//! | algorithm | over-admission: at most | false refusal: counts against a refusal at `t` |
//! |---|---|---|
//! | fixed window | `n L` in any `n` consecutive aligned windows (so `2 L` in any span of `W`) | the aligned window of `t` |
//! | sliding log | `L` in any span of `W` | `(t-W, t]`; or that many entries in it as the log can hold |
//! | sliding window, strict | `L` in any span of `W` | `(t-W-b, t]`, which is I4 |
//! | sliding window, interpolated | `2 L - 1` in any span of `W`, `L` in any `k` aligned buckets, and the estimate itself | the estimate |
//! | bucket, every kind | `B + floor((D-1) * rate)` in any span of `D` ticks | the largest possible debt |
//! | concurrency | `N` held at any instant | all that may be held at `t` |
//! | calendar quota | `n (Q + grace)` in any `n` consecutive periods | the period of `t` |
//! | rolling quota | `Q + grace` in each period as far as its ends are certain; `2 (Q + grace)` in any span of its length | what may belong to the period of `t` |
//! | meter | its limit, while it certainly did not expire | everything since it last certainly expired |
//!
//! If windows are not aligned, longer spans of `D` ticks are also checked against what follows from the above:
//! `L + floor(L * (D-1) / W)`, or `2 L` plus the same where only `2 L` per window is guaranteed. So calls whose intervals
//! are as wide as the window are checked too. Penalties depend on reports and not on charges, so their records are
//! [unchecked](Unchecked).
//!
//! Requirements on a history:
//!
//! - It contains every charge on its keys, from the first on, and the limit never changed. A Plan of several rules is
//!   recorded in one history per rule: in one history, an id belongs to one key. A check and a record may share it.
//! - `start` was read before the call was made and `end` after the answer arrived, both on the store's clock, which was
//!   never set back.
//! - A charge that may have been given back (a refund, a lost race for several slots) is recorded as
//!   [`CallResult::Unknown`], with the end of the refund as its `end`. So is a reservation; its cost is the larger of what was
//!   held and what was settled.
//! - An admitted peek charges nothing and is not recorded.
//!
//! A store that may refuse early by design (slices, Plans over several slots) may have false refusals. Its tests check
//! only [`Verdict::over_admitted`] and [`Verdict::id_conflicts`].

mod certain;
mod charge;
mod checker;
mod ids;
mod possible;
mod rolling;
mod verdict;

use std::collections::BTreeMap;
use std::fmt;

use tollgate_core::{Span, Time};

pub use checker::{Checker, ID_HORIZON_DEFAULT};
pub use ids::{Broken, IdConflict};
pub use verdict::{Counts, Unchecked, Verdict, Violation};

/// One recorded call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// The call took effect, if at all, at this instant of the store's clock or later.
    pub start: Time,
    /// The call took effect, if at all, at this instant or earlier. For a call without an answer, this is when the store
    /// can no longer execute it, or [`Time::MAX`] if that is unknown.
    pub end: Time,
    /// The calling node.
    pub node: u32,
    /// The key.
    pub key: String,
    /// The requested cost.
    pub cost: u64,
    /// The request id, if the call carried one.
    pub id: Option<u128>,
    /// The answer to the caller.
    pub answer: CallResult,
    /// How long a lease was held, for concurrency limits only. An admission without it never counts as over-admission and
    /// always counts against refusals.
    pub held: Option<Held>,
}

/// The answer to a call.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CallResult {
    /// Admitted by the store.
    Allow,
    /// Refused by the store.
    Refuse,
    /// Answered by a failure policy instead of the store. It is unknown whether the store executed the call.
    Degraded,
    /// No answer: a timeout or a lost connection. The call may have taken effect or not.
    Unknown,
    /// A record, whether or not it was answered.
    Recorded,
    /// A credit, whether or not it was answered. Its cost is what it asked for.
    Credited,
}

/// How long a lease was held, as far as its owner knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held {
    /// The lease was certainly held from this instant on.
    pub from: Time,
    /// The lease was certainly held until just before this instant.
    pub until: Time,
    /// The first instant at which the lease had certainly ended.
    pub gone: Time,
}

/// Recorded calls of any number of nodes on any number of keys, in any order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct History {
    records: Vec<Record>,
}

impl Record {
    /// Creates a record of a call that took effect between `start` and `end`, inclusive: by node 0, without an id.
    pub fn new(key: impl Into<String>, cost: u64, answer: CallResult, start: Time, end: Time) -> Record {
        Record { start, end, node: 0, key: key.into(), cost, id: None, answer, held: None }
    }

    /// Sets the node.
    pub fn by(self, node: u32) -> Record {
        Record { node, ..self }
    }

    /// Sets the request id.
    pub fn with_id(self, id: u128) -> Record {
        Record { id: Some(id), ..self }
    }

    /// Sets how long the lease was held.
    pub fn with_held(self, held: Held) -> Record {
        Record { held: Some(held), ..self }
    }
}

impl Held {
    /// Creates a lease that was taken between `start` and `end` and expires after `lease`.
    pub fn leased(start: Time, end: Time, lease: Span) -> Held {
        Held { from: end, until: start.plus(lease), gone: last_end(end, lease) }
    }

    /// Records a renewal for `lease` between `start` and `end`.
    pub fn renewed(self, start: Time, end: Time, lease: Span) -> Held {
        Held { until: self.until.max(start.plus(lease)), gone: self.gone.max(last_end(end, lease)), ..self }
    }

    /// Records a release between `start` and `end`.
    pub fn released(self, start: Time, end: Time) -> Held {
        // At `end` itself, another call may still have been executed before the release.
        Held { until: self.until.min(start), gone: self.gone.min(end.plus(Span::from_us(1))), ..self }
    }
}

/// The end of a lease that was taken at `at`. Stores round it up to a multiple of 1/32 of its length.
fn last_end(at: Time, lease: Span) -> Time {
    let part = (lease.us() / 32).max(1);
    Time::from_us((at.us() + lease.us()).div_ceil(part) * part)
}

impl History {
    /// Creates an empty history.
    pub fn new() -> History {
        History::default()
    }

    /// Adds a record.
    pub fn push(&mut self, record: Record) {
        self.records.push(record);
    }

    /// Returns the records, in the order in which they were added.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// Returns the records of each key.
    pub fn by_key(&self) -> BTreeMap<&str, Vec<&Record>> {
        let mut keys: BTreeMap<&str, Vec<&Record>> = BTreeMap::new();
        for record in &self.records {
            keys.entry(&record.key).or_default().push(record);
        }
        keys
    }
}

impl Extend<Record> for History {
    fn extend<I: IntoIterator<Item = Record>>(&mut self, records: I) {
        self.records.extend(records);
    }
}

impl FromIterator<Record> for History {
    fn from_iter<I: IntoIterator<Item = Record>>(records: I) -> History {
        History { records: records.into_iter().collect() }
    }
}

impl CallResult {
    /// Returns its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            CallResult::Allow => "allow",
            CallResult::Refuse => "refuse",
            CallResult::Degraded => "degraded",
            CallResult::Unknown => "unknown",
            CallResult::Recorded => "recorded",
            CallResult::Credited => "credited",
        }
    }

    /// Whether the store may have charged the call.
    const fn may_charge(self) -> bool {
        !matches!(self, CallResult::Refuse | CallResult::Credited)
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Record { start, end, node, cost, answer, .. } = self;
        write!(f, "{} of {cost} to node {node} in [{start:?}, {end:?}]", answer.name())?;
        if let Some(id) = self.id {
            write!(f, ", id {id:x}")?;
        }
        if let Some(Held { from, until, gone }) = self.held {
            write!(f, ", held [{from:?}, {until:?}), gone at {gone:?}")?;
        }
        Ok(())
    }
}
