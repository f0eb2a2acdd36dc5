//! Sliding log: at most `limit` units in any window, exactly.
//!
//! Each entry carries the running total of cost at its instant, so that the cost of any stretch of the log is
//! one subtraction and every search is a binary one. Requests of one tick share an entry.
//!
//! Largest intermediate: `running total + cost`, below 2^54. Totals wrap at 2^53; the limit is at most 2^52, so that
//! the cost of a stretch, the distance of two totals, is never ambiguous.

use std::collections::VecDeque;

use crate::algorithm::machine::{LimitStatus, Machine, Step};
use crate::answer::{Decline, Retry, Verdict};
use crate::limit::error::{LimitError, positive_at_most, positive_span};
use crate::plan::operation::{Mark, Operation};
use crate::time::{EXACT_MAX, Span, Time};

/// The largest limit.
pub const LIMIT_MAX: u64 = 1 << 52;
/// The most entries a log may hold.
pub const ENTRIES_MAX: u64 = 1 << 20;
/// The most entries a log holds unless told otherwise.
pub const ENTRIES_DEFAULT: u64 = 1 << 16;
/// How many of the newest entries a refund searches: its work is bounded.
pub const REFUND_REACH: usize = 16;

/// Running totals wrap here.
const WRAP: u64 = EXACT_MAX + 1;

/// At most `limit` units in any span of length `window`, and at most `entries` instants to remember in it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SlidingLog {
    limit: u64,
    window: Span,
    entries: u64,
}

/// The admitted requests that may still count, oldest first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SlidingLogState {
    /// Running total before the first entry.
    pub base: u64,
    /// One entry per instant.
    pub entries: VecDeque<Entry>,
}

/// What was admitted at one instant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The instant.
    pub time: Time,
    /// Running total of cost, this entry included.
    pub total: u64,
}

/// What a decision wants done to the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogChange {
    /// Drop the oldest `expired` entries, then add `cost` at `time`.
    Add {
        /// Entries that no longer count.
        expired: usize,
        /// The instant; not before the newest entry's.
        time: Time,
        /// Units admitted.
        cost: u64,
    },
    /// Take `cost` out of the entry at `index`.
    Take {
        /// Position from the oldest.
        index: usize,
        /// Units given back.
        cost: u64,
    },
}

impl SlidingLog {
    /// A limit of `limit` units per `window`.
    pub fn new(limit: u64, window: Span) -> Result<SlidingLog, LimitError> {
        SlidingLog::with_entries(limit, window, limit.min(ENTRIES_DEFAULT))
    }

    /// The same, remembering at most `entries` instants: a charge that would need one more is refused.
    pub fn with_entries(limit: u64, window: Span, entries: u64) -> Result<SlidingLog, LimitError> {
        Ok(SlidingLog {
            limit: positive_at_most("limit", limit, LIMIT_MAX)?,
            window: positive_span("window", window)?,
            entries: positive_at_most("entries", entries, ENTRIES_MAX)?,
        })
    }

    /// Units per window.
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// The window's length.
    pub const fn window(&self) -> Span {
        self.window
    }

    /// The most instants remembered at once.
    pub const fn entries(&self) -> u64 {
        self.entries
    }

    fn current<'s>(&self, state: Option<&'s SlidingLogState>, now: Time) -> Current<'s> {
        let Some(state) = state else { return Current::empty(now) };
        let Some(newest) = state.entries.back() else { return Current::empty(now) };
        let now = now.max(newest.time);
        let expired = state.entries.partition_point(|entry| entry.time.plus(self.window) <= now);
        let base = expired.checked_sub(1).map_or(state.base, |last| state.entries[last].total);
        let room = newest.time == now || ((state.entries.len() - expired) as u64) < self.entries;
        let used = distance(base, newest.total);
        Current { now, entries: Some(&state.entries), expired, base, used, room }
    }

    fn status(&self, current: &Current<'_>, used: u64, newest: Option<Time>) -> LimitStatus {
        LimitStatus {
            limit: self.limit,
            remaining: self.remaining(current, used),
            reset_at: newest.map_or(current.now, |time| time.plus(self.window)),
        }
    }

    fn remaining(&self, current: &Current<'_>, used: u64) -> u64 {
        if current.room { self.limit.saturating_sub(used) } else { 0 }
    }

    fn charge(&self, current: &Current<'_>, cost: u64) -> Step<LogChange> {
        let needed = cost.max(1);
        if current.used + needed > self.limit || !current.room {
            let retry = self.retry(current, needed);
            return self
                .status(current, current.used, current.newest_cost())
                .unchanged(Verdict::Refused(Retry::At(retry)));
        }
        let admitted = Verdict::Admitted { delay: Span::ZERO };
        if cost == 0 {
            return self.status(current, current.used, current.newest_cost()).unchanged(admitted);
        }
        let time = current.now;
        let status = self.status(current, current.used + cost, Some(time));
        let change = LogChange::Add { expired: current.expired, time, cost };
        status.write(admitted, Mark::At { time }, change, time.plus(self.window))
    }

    /// When enough of the oldest cost, and enough of the oldest entries, will have left.
    fn retry(&self, current: &Current<'_>, needed: u64) -> Time {
        let Some(entries) = current.entries else { return current.now };
        let total = entries.back().map_or(current.base, |newest| newest.total);
        let cost_leaves = entries.partition_point(|entry| distance(entry.total, total) + needed > self.limit);
        let live = (entries.len() - current.expired) as u64;
        // By then the newest entry's instant has passed: nothing can share it, there must be room for one more.
        let entry_leaves =
            live.checked_sub(self.entries).map_or(0, |excess| current.expired + excess as usize);
        let last_to_leave = cost_leaves.max(entry_leaves).max(current.expired);
        entries.get(last_to_leave).map_or(current.now, |entry| entry.time.plus(self.window))
    }

    fn refund(&self, current: &Current<'_>, mark: Mark, cost: u64) -> Step<LogChange> {
        let status = self.status(current, current.used, current.newest_cost());
        let (Mark::At { time }, Some(entries)) = (mark, current.entries) else {
            return status.decline(Decline::NotHeld);
        };
        let Ok(index) = entries.binary_search_by_key(&time, |entry| entry.time) else {
            return status.decline(Decline::NotHeld);
        };
        if index < current.expired {
            return status.decline(Decline::NotHeld);
        }
        if index + REFUND_REACH < entries.len() {
            return status.decline(Decline::TooOld);
        }
        let before = if index > current.expired { entries[index - 1].total } else { current.base };
        let given = cost.min(distance(before, entries[index].total));
        if given == 0 {
            return status.decline(Decline::NotHeld);
        }
        let rest = current.used - given;
        let reset_at = self.reset_without(entries, index, given, rest, current.now);
        let dies_at = entries.back().map_or(current.now, |newest| newest.time.plus(self.window));
        let status = LimitStatus { remaining: self.remaining(current, rest), reset_at, ..status };
        status.write(
            Verdict::Done { amount: given },
            Mark::None,
            LogChange::Take { index, cost: given },
            dies_at,
        )
    }

    /// When everything is back once `given` is taken out of the entry at `index` and `rest` still counts.
    fn reset_without(
        &self,
        entries: &VecDeque<Entry>,
        index: usize,
        given: u64,
        rest: u64,
        now: Time,
    ) -> Time {
        if rest == 0 {
            return now;
        }
        // The entry and all above it move by the same amount.
        let from = entries[index].time;
        let moved = |entry: &Entry| {
            if entry.time < from { entry.total } else { wrapped(entry.total + WRAP - given) }
        };
        let total = entries.back().map(moved);
        let newest = entries.partition_point(|entry| Some(moved(entry)) != total);
        entries.get(newest).map_or(now, |entry| entry.time.plus(self.window))
    }
}

/// The state moved to an instant.
struct Current<'s> {
    /// Effective instant.
    now: Time,
    entries: Option<&'s VecDeque<Entry>>,
    /// How many of the oldest entries no longer count.
    expired: usize,
    /// Running total before the first that counts.
    base: u64,
    /// Cost that counts.
    used: u64,
    /// Whether one more charge could be remembered.
    room: bool,
}

impl Current<'_> {
    fn empty(now: Time) -> Self {
        Current { now, entries: None, expired: 0, base: 0, used: 0, room: true }
    }

    /// When the newest cost that counts was admitted. Entries above it, if any, were refunded whole.
    fn newest_cost(&self) -> Option<Time> {
        let entries = self.entries.filter(|_| self.used > 0)?;
        let total = entries.back()?.total;
        entries.get(entries.partition_point(|entry| entry.total != total)).map(|entry| entry.time)
    }
}

impl SlidingLogState {
    fn add(&mut self, expired: usize, time: Time, cost: u64) {
        if let Some(last) = expired.checked_sub(1) {
            self.base = self.entries[last].total;
            self.entries.drain(..expired);
        }
        let total = wrapped(self.entries.back().map_or(self.base, |entry| entry.total) + cost);
        match self.entries.back_mut() {
            Some(newest) if newest.time == time => newest.total = total,
            _ => self.entries.push_back(Entry { time, total }),
        }
    }
}

/// A running total, brought back below where totals wrap.
const fn wrapped(total: u64) -> u64 {
    total & (WRAP - 1)
}

/// The cost between two running totals.
pub(crate) const fn distance(from: u64, to: u64) -> u64 {
    wrapped(to + WRAP - from)
}

impl Machine for SlidingLog {
    type State = SlidingLogState;
    type Change = LogChange;

    fn capacity(&self) -> u64 {
        self.limit
    }

    fn decide(&self, state: Option<&SlidingLogState>, now: Time, operation: &Operation) -> Step<LogChange> {
        let current = self.current(state, now);
        match *operation {
            Operation::Charge { cost, .. } => self.charge(&current, cost),
            Operation::Peek { cost } => self.charge(&current, cost).without_write(),
            Operation::Refund { mark, cost } => self.refund(&current, mark, cost),
            _ => self.status(&current, current.used, current.newest_cost()).decline(Decline::NotSupported),
        }
    }

    fn commit(slot: &mut Option<SlidingLogState>, change: LogChange) {
        let state = slot.get_or_insert_default();
        match change {
            LogChange::Add { expired, time, cost } => state.add(expired, time, cost),
            LogChange::Take { index, cost } => {
                let newer = state.entries.range_mut(index..);
                newer.for_each(|entry| entry.total = wrapped(entry.total + WRAP - cost));
            }
        }
    }
}
