//! Sliding log: at most `limit` units in any window, exactly.
//!
//! - Guarantee: no span of length `window`, wherever it starts, admits more than `limit` units. Records are not admitted
//!   and may exceed it.
//! - State: one entry per instant with charges, oldest first. An entry is its time in microseconds and the running
//!   total of cost up to and including it. So the cost between two entries is one subtraction, and searches are binary.
//! - Admits cost c iff `cost of live entries + c <= limit` and the log has room for one more entry. Charges at the same
//!   instant share an entry. An entry is live until its time + window.
//! - Retry at: when enough of the oldest cost, and enough of the oldest entries, have left.
//! - Key may expire at: time of the newest entry + window.
//! - Refund: only the [`REFUND_REACH`] newest entries, so that the work is bounded.
//! - Record: adds an entry, up to a live cost of 2^53 - 1. If the log has no room, the newest entry moves to now and takes
//!   the cost, so its units count longer.
//! - Credit: takes the oldest live cost, whole entries and a part of the next one. If nothing is left, no entry is.
//! - Largest intermediate: `running total + cost`, below 2^54. Totals wrap at 2^53. The live cost is below that, so the
//!   distance between two totals is never ambiguous.

use std::collections::VecDeque;

use crate::algorithm::machine::{LimitStatus, Machine, Step};
use crate::limit::error::{LimitError, positive_at_most, positive_span};
use crate::plan::answer::{Decline, Retry, Verdict};
use crate::plan::operation::{Mark, Operation};
use crate::time::{EXACT_MAX, Span, Time};

/// Largest limit.
pub const LIMIT_MAX: u64 = 1 << 52;
/// Largest number of entries that can be configured.
pub const ENTRIES_MAX: u64 = 1 << 20;
/// Default for the largest number of entries.
pub const ENTRIES_DEFAULT: u64 = 1 << 16;
/// Number of newest entries that a refund searches.
pub const REFUND_REACH: usize = 16;

/// Running totals are counted modulo this.
const WRAP: u64 = EXACT_MAX + 1;

/// At most `limit` units in any span of length `window`, with at most `entries` log entries.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SlidingLog {
    limit: u64,
    window: Span,
    entries: u64,
}

/// The charges that may still count.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SlidingLogState {
    /// Running total before the first entry.
    pub base: u64,
    /// One entry per instant, oldest first.
    pub entries: VecDeque<Entry>,
}

/// The charges of one instant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The instant.
    pub time: Time,
    /// Running total of cost, including this entry.
    pub total: u64,
}

/// What a decision asks to change in the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogChange {
    /// Drop the oldest `expired` entries, then add `cost` at `time`.
    Add {
        /// Number of entries that no longer count.
        expired: usize,
        /// The instant of the charge. Not earlier than the newest entry.
        time: Time,
        /// Units charged.
        cost: u64,
    },
    /// Drop the oldest `expired` entries, then move the newest entry to `time` and add `cost` to it.
    Move {
        /// Number of entries that no longer count. The newest entry counts.
        expired: usize,
        /// The instant of the record. Later than the newest entry.
        time: Time,
        /// Units recorded.
        cost: u64,
    },
    /// Take `cost` out of the entry at `index`.
    Take {
        /// Position, counted from the oldest entry.
        index: usize,
        /// Units given back.
        cost: u64,
    },
    /// Drop the oldest entries, and let the next one count from a higher total.
    TakeOldest {
        /// Number of entries that no longer count or are empty now.
        dropped: usize,
        /// The new running total before the first entry.
        base: u64,
    },
}

impl SlidingLog {
    /// Creates a limit of `limit` units per `window`.
    pub fn new(limit: u64, window: Span) -> Result<SlidingLog, LimitError> {
        SlidingLog::with_entries(limit, window, limit.min(ENTRIES_DEFAULT))
    }

    /// Creates a limit with at most `entries` log entries. A charge that would need one more is refused.
    pub fn with_entries(limit: u64, window: Span, entries: u64) -> Result<SlidingLog, LimitError> {
        Ok(SlidingLog {
            limit: positive_at_most("limit", limit, LIMIT_MAX)?,
            window: positive_span("window", window)?,
            entries: positive_at_most("entries", entries, ENTRIES_MAX)?,
        })
    }

    /// Returns the units per window.
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the window's length.
    pub const fn window(&self) -> Span {
        self.window
    }

    /// Returns the largest number of log entries.
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

    /// Returns when enough of the oldest cost, and enough of the oldest entries, will have left.
    fn retry(&self, current: &Current<'_>, needed: u64) -> Time {
        let Some(entries) = current.entries else { return current.now };
        let last_to_leave = self.last_to_leave(current, entries, needed, entries.len());
        entries.get(last_to_leave).map_or(current.now, |entry| entry.time.plus(self.window))
    }

    /// Returns the position of the last entry that must leave before `needed` units fit into a log of `len` entries.
    fn last_to_leave(
        &self,
        current: &Current<'_>,
        entries: &VecDeque<Entry>,
        needed: u64,
        len: usize,
    ) -> usize {
        let total = entries.back().map_or(current.base, |newest| newest.total);
        let cost_leaves = entries.partition_point(|entry| distance(entry.total, total) + needed > self.limit);
        let live = (len - current.expired) as u64;
        // At the retry, the newest entry's instant has passed, so the charge cannot share it and needs a new entry.
        let entry_leaves =
            live.checked_sub(self.entries).map_or(0, |excess| current.expired + excess as usize);
        cost_leaves.max(entry_leaves).max(current.expired)
    }

    fn record(&self, current: &Current<'_>, now: Time, cost: u64) -> Step<LogChange> {
        let amount = cost.min(EXACT_MAX - current.used);
        let used = current.used + amount;
        let overdraft = used.saturating_sub(self.limit);
        if amount == 0 {
            let is_free = current.room && used < self.limit;
            let free_at = if is_free { now } else { self.retry(current, 1) };
            let recorded = Verdict::Recorded { amount, overdraft, free_at };
            return self.status(current, used, current.newest_cost()).unchanged(recorded);
        }
        let (expired, time) = (current.expired, current.now);
        let free_at = if used < self.limit { now } else { self.retry_after_record(current, amount) };
        let recorded = Verdict::Recorded { amount, overdraft, free_at };
        let change = if current.room {
            LogChange::Add { expired, time, cost: amount }
        } else {
            LogChange::Move { expired, time, cost: amount }
        };
        // A charge at this instant shares the entry, so there is room for it.
        let reset_at = time.plus(self.window);
        let status = LimitStatus { limit: self.limit, remaining: self.limit.saturating_sub(used), reset_at };
        status.write(recorded, Mark::At { time }, change, reset_at)
    }

    /// Returns when one unit will fit after a record of `amount` units now.
    fn retry_after_record(&self, current: &Current<'_>, amount: u64) -> Time {
        let (none, now) = (VecDeque::new(), current.now);
        let entries = current.entries.unwrap_or(&none);
        let is_new = current.room && entries.back().is_none_or(|newest| newest.time < now);
        let len = entries.len() + usize::from(is_new);
        let last_to_leave = self.last_to_leave(current, entries, amount + 1, len);
        let older = entries.get(last_to_leave).filter(|_| last_to_leave + 1 < len);
        older.map_or(now, |entry| entry.time).plus(self.window)
    }

    /// Takes the oldest live cost: the log counts from a higher total, and entries up to that total are dropped.
    fn credit(&self, current: &Current<'_>, cost: u64) -> Step<LogChange> {
        let given = cost.min(current.used);
        let (done, rest) = (Verdict::Done { amount: given }, current.used - given);
        let Some(entries) = current.entries.filter(|_| given > 0) else {
            return self.status(current, current.used, current.newest_cost()).unchanged(done);
        };
        let is_dropped = |entry: &Entry| {
            entry.time.plus(self.window) <= current.now || distance(current.base, entry.total) <= given
        };
        let dropped = entries.partition_point(is_dropped);
        let change = LogChange::TakeOldest { dropped, base: wrapped(current.base + given) };
        let left = (entries.len() - dropped) as u64;
        let after = Current { room: current.room || left < self.entries, ..*current };
        let Some(newest) = entries.back().filter(|_| rest > 0) else {
            return self.status(&after, 0, None).amend(done, change);
        };
        let status = self.status(&after, rest, current.newest_cost());
        status.write(done, Mark::None, change, newest.time.plus(self.window))
    }

    fn refund(&self, current: &Current<'_>, mark: Mark, amount: u64) -> Step<LogChange> {
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
        let given = amount.min(distance(before, entries[index].total));
        if given == 0 {
            return status.decline(Decline::NotHeld);
        }
        let rest = current.used - given;
        let reset_at = self.reset_without(entries, index, given, rest, current.now);
        let status = LimitStatus { remaining: self.remaining(current, rest), reset_at, ..status };
        status.amend(Verdict::Done { amount: given }, LogChange::Take { index, cost: given })
    }

    /// Returns when `remaining` is full again after `given` is taken out of the entry at `index` and `rest` units remain.
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
        // The totals of this entry and of all newer ones fall by the same amount.
        let from = entries[index].time;
        let moved = |entry: &Entry| {
            if entry.time < from { entry.total } else { wrapped(entry.total + WRAP - given) }
        };
        let total = entries.back().map(moved);
        let newest = entries.partition_point(|entry| Some(moved(entry)) != total);
        entries.get(newest).map_or(now, |entry| entry.time.plus(self.window))
    }
}

/// The state at one instant.
struct Current<'s> {
    /// Effective instant.
    now: Time,
    entries: Option<&'s VecDeque<Entry>>,
    /// Number of oldest entries that no longer count.
    expired: usize,
    /// Running total before the first live entry.
    base: u64,
    /// Cost of all live entries.
    used: u64,
    /// Whether the log has room for one more charge.
    room: bool,
}

impl Current<'_> {
    fn empty(now: Time) -> Self {
        Current { now, entries: None, expired: 0, base: 0, used: 0, room: true }
    }

    /// Returns when the newest live cost was charged. Newer entries, if any, were refunded completely.
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

/// Reduces a running total modulo `WRAP`.
pub const fn wrapped(total: u64) -> u64 {
    total & (WRAP - 1)
}

/// Returns the cost between two running totals.
pub const fn distance(from: u64, to: u64) -> u64 {
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
            Operation::Refund { mark, cost, amount } => self.refund(&current, mark, amount.min(cost)),
            Operation::Record { cost } => self.record(&current, now, cost),
            Operation::Credit { cost } => self.credit(&current, cost),
            _ => self.status(&current, current.used, current.newest_cost()).decline(Decline::NotSupported),
        }
    }

    fn commit(slot: &mut Option<SlidingLogState>, change: LogChange) {
        let state = slot.get_or_insert_default();
        match change {
            LogChange::Add { expired, time, cost } => state.add(expired, time, cost),
            LogChange::Move { expired, time, cost } => {
                if let Some(newest) = state.entries.back_mut() {
                    newest.time = time;
                }
                state.add(expired, time, cost);
            }
            LogChange::TakeOldest { dropped, base } => {
                state.base = base;
                state.entries.drain(..dropped);
            }
            LogChange::Take { index, cost } => {
                let newer = state.entries.range_mut(index..);
                newer.for_each(|entry| entry.total = wrapped(entry.total + WRAP - cost));
            }
        }
    }
}
