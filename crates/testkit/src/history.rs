//! The history checker: proves or refutes, from recorded calls alone, that a store kept a limit's promises.
//!
//! A concurrent test cannot know at which instant a call took effect, only between which two. So every record
//! carries an interval, and the checker accuses only if the promise is broken wherever in their intervals the
//! calls took effect. It never accuses a store that kept its promise; how much it sees of one that did not
//! depends on how narrow the intervals are.
//!
//! - **Over-admission.** What certainly fell into a span (the record's interval lies inside it) may not exceed
//!   what the limit promises for the span. [`Answer::Unknown`] counts nothing.
//! - **False refusal.** A refusal is justified if everything that possibly counted against it, with
//!   [`Answer::Unknown`] and [`Answer::Degraded`] counted in full, leaves no room for it.
//! - **Request ids.** However often an id was admitted, it is one charge.
//!
//! What is promised, by algorithm (`L` limit, `W` window, `b` bucket of a sliding window, `k = W/b`):
//!
//! | algorithm | over-admission: at most | false refusal: counts against a refusal at `t` |
//! |---|---|---|
//! | fixed window | `n L` in any `n` aligned windows in a row (so `2 L` in any span of `W`) | the aligned window of `t` |
//! | sliding log | `L` in any span of `W` | `(t-W, t]`; or as many charges in it as it remembers |
//! | sliding window, strict | `L` in any span of `W` | `(t-W-b, t]`, which is I4 |
//! | sliding window, interpolated | `2 L - 1` in any span of `W`, `L` in any `k` aligned buckets, and the estimate itself | the estimate |
//! | bucket, every shape | `B + floor((D-1) * rate)` in any span of `D` ticks | the largest possible debt |
//! | concurrency | `N` held at any instant | all that may be held at `t` |
//! | quota by the calendar | `n (Q + grace)` in any `n` periods in a row | the period of `t` |
//! | quota from first use | `Q + grace` in each period as far as its ends are certain; `2 (Q + grace)` in any span of its length | what may belong to the period of `t` |
//! | meter | its limit, while it certainly is not left alone for its expiry | all since it last certainly was |
//!
//! Where time is not cut into aligned windows, longer spans of `D` ticks are also held to what follows from the
//! above, `L + floor(L * (D-1) / W)` (or `2 L` and as much, where only `2 L` in a window is promised): that is
//! how calls whose intervals are as wide as the window are held to anything. Penalties depend on what was
//! reported, not on what was charged: their records are [unchecked](Unchecked).
//!
//! What a history must be for this to hold:
//!
//! - Every charge on its keys is in it, from the first, and the limit never changed. A Plan of several rules is
//!   recorded in as many histories: in one history an id belongs to one key.
//! - `start` was read before the call was made and `end` after it was answered, on the store's clock, which
//!   never fell.
//! - A charge that may have been given back (a refund, a lost race for several slots) is recorded as
//!   [`Answer::Unknown`], with the end of the giving back as its `end`. So is a reservation, with the larger of
//!   what was held and what was settled as its cost.
//! - An admitted peek charges nothing and is left out.
//!
//! A store that may refuse early by design (slices, Plans over several slots) breaks no promise with a false
//! refusal: its tests look at [`Verdict::over_admitted`] and [`Verdict::id_conflicts`] only.

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

/// One call and what is known of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// It took effect, if at all, at this instant of the store's clock or later.
    pub start: Time,
    /// It took effect, if at all, at this instant or earlier. For a call without an answer this is when the
    /// store can no longer carry it out, [`Time::MAX`] if nobody knows.
    pub end: Time,
    /// Who called.
    pub node: u32,
    /// Whose state.
    pub key: String,
    /// How much was asked for.
    pub cost: u64,
    /// The request id, if the call carried one.
    pub id: Option<u128>,
    /// What the caller was told.
    pub answer: Answer,
    /// How long an admission was held; only concurrency limits look at it. An admission without it counts
    /// nothing towards over-admission and for ever against refusals.
    pub held: Option<Held>,
}

/// What a caller was told.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Answer {
    /// Admitted by the store.
    Allow,
    /// Refused by the store.
    Refuse,
    /// Answered without the store, by a failure policy. What became of the call in the store is not known.
    Degraded,
    /// No answer: a timeout, a lost connection. It may have taken effect or not.
    Unknown,
}

/// How long a lease was held, as far as its owner can know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held {
    /// Certainly held from here on.
    pub from: Time,
    /// Certainly held up to here, and perhaps no longer at this instant.
    pub until: Time,
    /// The first instant at which it is certainly gone.
    pub gone: Time,
}

/// Calls of any number of nodes on any number of keys, in any order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct History {
    records: Vec<Record>,
}

impl Record {
    /// A call on `key` that took effect between `start` and `end`, both included: by node 0, without an id.
    pub fn new(key: impl Into<String>, cost: u64, answer: Answer, start: Time, end: Time) -> Record {
        Record { start, end, node: 0, key: key.into(), cost, id: None, answer, held: None }
    }

    /// The same call by this node.
    pub fn by(self, node: u32) -> Record {
        Record { node, ..self }
    }

    /// The same call with this request id.
    pub fn with_id(self, id: u128) -> Record {
        Record { id: Some(id), ..self }
    }

    /// The same call, admitted and held so long.
    pub fn with_held(self, held: Held) -> Record {
        Record { held: Some(held), ..self }
    }
}

impl Held {
    /// A lease taken between `start` and `end` that is left to end by itself after `lease`.
    pub fn leased(start: Time, end: Time, lease: Span) -> Held {
        Held { from: end, until: start.plus(lease), gone: end.plus(lease) }
    }

    /// The same lease, renewed between `start` and `end` for `lease`.
    pub fn renewed(self, start: Time, end: Time, lease: Span) -> Held {
        Held { until: self.until.max(start.plus(lease)), gone: self.gone.max(end.plus(lease)), ..self }
    }

    /// The same lease, released between `start` and `end`.
    pub fn released(self, start: Time, end: Time) -> Held {
        // At `end` itself another call may still have come before the release.
        Held { until: self.until.min(start), gone: self.gone.min(end.plus(Span::from_us(1))), ..self }
    }
}

impl History {
    /// A history without calls.
    pub fn new() -> History {
        History::default()
    }

    /// Adds a call.
    pub fn push(&mut self, record: Record) {
        self.records.push(record);
    }

    /// The calls, in the order in which they were added.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// The calls on each key.
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

impl Answer {
    /// The word for it in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Answer::Allow => "allow",
            Answer::Refuse => "refuse",
            Answer::Degraded => "degraded",
            Answer::Unknown => "unknown",
        }
    }

    /// Whether the store may have charged for the call.
    const fn may_charge(self) -> bool {
        !matches!(self, Answer::Refuse)
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
