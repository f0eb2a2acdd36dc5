//! A sliding window of many buckets: the sliding log's ring, with times rounded down to the start of their bucket.
//!
//! A window of up to [`COUNTS_MAX`] buckets keeps one count per bucket (`sliding_window.rs`), and each check reads all of
//! them. This state keeps one entry per bucket with charges, with running totals as in the log. A check needs a few binary
//! searches, whatever the number of buckets.
//!
//! - Guarantee, admission, retry: as in `sliding_window.rs`, strict or interpolated.
//! - State: length of one bucket in microseconds, and entries, oldest first. An entry is the start of its bucket and the
//!   running total of cost up to and including it.
//! - Buckets of another length: as in `sliding_window.rs`, each counts as a whole in the bucket that contains its last
//!   instant. Reads compute that for the entries that they need. The next charge converts all entries, once.
//! - Key may expire at: `buckets + 1` bucket lengths after the start of the newest entry.
//! - Refund: only the [`REFUND_REACH`] newest entries, so that the work is bounded, and not into buckets of another length.
//! - Record and credit: as in `sliding_window.rs`. A credit drops emptied entries but the newest, and
//!   converts nothing.
//! - Largest intermediate: `running total + cost`, below 2^54; totals wrap at 2^53, and all entries together cost less.
//!   Interpolated: `count * bucket ticks`, at most 2^53 - 1, because a larger oldest bucket is clamped.

use std::collections::VecDeque;

use crate::algorithm::machine::{LimitStatus, Machine, Step};
use crate::algorithm::sliding_log::{Entry, REFUND_REACH, distance, wrapped};
use crate::algorithm::sliding_window::{BUCKETS_MAX, Counting, SlidingWindow, SlidingWindowState};
use crate::plan::answer::{Decline, Retry, Verdict};
use crate::plan::operation::{Mark, Operation};
use crate::time::{EXACT_MAX, Span, Time};

/// Largest number of buckets that are kept as counts.
pub const COUNTS_MAX: u64 = 64;

/// A sliding window whose buckets are kept as a ring.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BucketRing {
    window: SlidingWindow,
}

/// The buckets with charges.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BucketRingState {
    /// Length of one bucket.
    pub bucket: Span,
    /// Running total before the first entry.
    pub base: u64,
    /// One entry per bucket with charges, oldest first.
    pub entries: VecDeque<Entry>,
}

/// What a decision asks to change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RingChange {
    /// Drop the oldest `expired` entries, then add `cost` to the bucket that starts at `start`.
    Add {
        /// Number of entries that no longer count.
        expired: usize,
        /// Start of the current bucket. Not earlier than the newest entry.
        start: Time,
        /// Units charged.
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
    /// The new state: the buckets had another length or form.
    Replace(BucketRingState),
}

impl BucketRing {
    /// Creates the ring of a sliding window.
    pub const fn new(window: SlidingWindow) -> BucketRing {
        BucketRing { window }
    }

    const fn bucket(&self) -> Span {
        Span::from_us(self.window.window().us() / self.window.buckets())
    }

    const fn ticks(&self) -> u64 {
        self.bucket().us() / self.window.tick().us()
    }

    /// Returns the start of the bucket in which a stored bucket counts.
    fn counted_start(&self, state: &BucketRingState, entry: &Entry) -> Time {
        if state.bucket == self.bucket() {
            return entry.time;
        }
        Time::from_us(entry.time.us() + state.bucket.us() - 1).floor(self.bucket())
    }

    /// Returns when a bucket that starts here no longer counts.
    fn leaves_at(&self, start: Time) -> Time {
        start.plus(self.window.window()).plus(self.bucket())
    }

    fn current<'s>(&self, state: Option<&'s BucketRingState>, now: Time) -> Current<'s> {
        let filled = state.and_then(|state| Some((state, state.entries.back()?)));
        let Some((state, newest)) = filled else {
            let start = now.floor(self.bucket());
            return Current { now, start, state: None, expired: 0, total: 0, live: 0, used: 0 };
        };
        let now = now.max(newest.time);
        let start = now.floor(self.bucket());
        let entries = &state.entries;
        let expired =
            entries.partition_point(|entry| self.leaves_at(self.counted_start(state, entry)) <= now);
        let newer = entries
            .partition_point(|entry| self.counted_start(state, entry).plus(self.window.window()) <= start);
        let before = |index: usize| index.checked_sub(1).map_or(state.base, |last| entries[last].total);
        let oldest = distance(before(expired), before(newer.max(expired)));
        let newer = distance(before(newer.max(expired)), newest.total);
        let used = newer.saturating_add(self.weigh(oldest, now - start)).min(EXACT_MAX);
        let live = distance(before(expired), newest.total);
        Current { now, start, state: Some(state), expired, total: newest.total, live, used }
    }

    /// Returns how much of the oldest bucket counts once `passed` of the current bucket has elapsed.
    fn weigh(&self, oldest: u64, passed: Span) -> u64 {
        match self.window.counting() {
            Counting::Strict => oldest,
            Counting::Interpolated => {
                let ticks = self.ticks();
                let passed = passed.us() / self.window.tick().us();
                (self.clamped(oldest) * (ticks - passed)).div_ceil(ticks)
            }
        }
    }

    /// Cuts the oldest bucket, so that no intermediate exceeds 2^53 - 1. A larger limit may have written it.
    fn clamped(&self, oldest: u64) -> u64 {
        oldest.min(EXACT_MAX / self.ticks())
    }

    fn status(&self, current: &Current<'_>, used: u64, newest: Option<Time>) -> LimitStatus {
        LimitStatus {
            limit: self.window.limit(),
            remaining: self.window.limit().saturating_sub(used),
            reset_at: newest.map_or(current.now, |start| self.leaves_at(start)),
        }
    }

    fn unchanged(&self, current: &Current<'_>) -> LimitStatus {
        self.status(current, current.used, self.newest_cost(current))
    }

    /// Returns the start of the newest bucket with live cost.
    fn newest_cost(&self, current: &Current<'_>) -> Option<Time> {
        let state = current.state.filter(|_| current.live > 0)?;
        let index = state.entries.partition_point(|entry| entry.total != current.total);
        state.entries.get(index).map(|entry| self.counted_start(state, entry))
    }

    fn charge(&self, current: &Current<'_>, cost: u64) -> Step<RingChange> {
        let needed = cost.max(1);
        if current.used + needed > self.window.limit() {
            let retry = self.retry(current, self.window.limit() - needed);
            return self.unchanged(current).unchanged(Verdict::Refused(Retry::At(retry)));
        }
        let admitted = Verdict::Admitted { delay: Span::ZERO };
        if cost == 0 {
            return self.unchanged(current).unchanged(admitted);
        }
        let status = self.status(current, current.used + cost, Some(current.start));
        let mark = Mark::Window { start: current.start };
        status.write(admitted, mark, self.add(current, cost), status.reset_at)
    }

    fn record(&self, current: &Current<'_>, now: Time, cost: u64) -> Step<RingChange> {
        let count_max = match self.window.counting() {
            Counting::Strict => EXACT_MAX,
            Counting::Interpolated => EXACT_MAX / self.ticks(),
        };
        let bucket_room = count_max.saturating_sub(self.newest_count(current));
        let amount = cost.min(bucket_room).min(EXACT_MAX - current.live);
        if amount == 0 {
            return self.unchanged(current).unchanged(self.recorded(current, now, 0));
        }
        let change = self.add(current, amount);
        let mut left = current.state.cloned();
        BucketRing::commit(&mut left, change.clone());
        let after = self.current(left.as_ref(), current.now);
        let (status, mark) = (self.unchanged(&after), Mark::Window { start: current.start });
        status.write(self.recorded(&after, now, amount), mark, change, status.reset_at)
    }

    /// Returns the verdict on a record of `amount` units, which this state contains.
    fn recorded(&self, after: &Current<'_>, now: Time, amount: u64) -> Verdict {
        let limit = self.window.limit();
        Verdict::Recorded {
            amount,
            overdraft: after.used.saturating_sub(limit),
            free_at: if after.used < limit { now } else { self.retry(after, limit - 1) },
        }
    }

    /// Returns the units that count in the newest bucket.
    fn newest_count(&self, current: &Current<'_>) -> u64 {
        let Some(state) = current.state else { return 0 };
        let first = state.entries.partition_point(|entry| self.counted_start(state, entry) < current.start);
        let before = first.checked_sub(1).map_or(state.base, |last| state.entries[last].total);
        distance(before, current.total)
    }

    /// Takes units out of the oldest buckets. The amount is what counts less, as in a refund.
    fn credit(&self, current: &Current<'_>, cost: u64) -> Step<RingChange> {
        let given = cost.min(current.live);
        let Some(state) = current.state.filter(|_| given > 0) else {
            return self.unchanged(current).unchanged(Verdict::Done { amount: 0 });
        };
        let last_expired = current.expired.checked_sub(1);
        let before = last_expired.map_or(state.base, |last| state.entries[last].total);
        let is_dropped = |entry: &Entry| {
            let has_left = self.leaves_at(self.counted_start(state, entry)) <= current.now;
            has_left || distance(before, entry.total) <= given
        };
        // The newest entry stays, so that time does not run backwards.
        let dropped = state.entries.partition_point(is_dropped).min(state.entries.len() - 1);
        let change = RingChange::TakeOldest { dropped, base: wrapped(before + given) };
        let mut left = Some(state.clone());
        BucketRing::commit(&mut left, change.clone());
        let after = self.current(left.as_ref(), current.now);
        let (status, done) = (self.unchanged(&after), Verdict::Done { amount: current.used - after.used });
        if after.live == 0 {
            return status.amend(done, change);
        }
        status.write(done, Mark::None, change, status.reset_at)
    }

    fn add(&self, current: &Current<'_>, cost: u64) -> RingChange {
        let (expired, start) = (current.expired, current.start);
        match current.state {
            Some(state) if state.bucket != self.bucket() => {
                let mut converted = BucketRingState {
                    bucket: self.bucket(),
                    base: expired.checked_sub(1).map_or(state.base, |last| state.entries[last].total),
                    entries: VecDeque::new(),
                };
                for entry in state.entries.range(expired..) {
                    converted.push(self.counted_start(state, entry).min(start), entry.total);
                }
                converted.add(0, start, cost);
                RingChange::Replace(converted)
            }
            None => {
                let mut first = BucketRingState { bucket: self.bucket(), ..BucketRingState::default() };
                first.add(0, start, cost);
                RingChange::Replace(first)
            }
            Some(_) => RingChange::Add { expired, start, cost },
        }
    }

    /// Returns when at most `room` units still count.
    fn retry(&self, current: &Current<'_>, room: u64) -> Time {
        let Some(state) = current.state else { return current.now };
        let entries = &state.entries;
        let index =
            entries.partition_point(|entry| distance(entry.total, current.total) > room).max(current.expired);
        let Some(entry) = entries.get(index) else { return current.now };
        let start = self.counted_start(state, entry);
        if self.window.counting() == Counting::Strict {
            return self.leaves_at(start);
        }
        // The bucket that must leave in part, or as a whole. Buckets of another length may share it.
        let first = entries.partition_point(|entry| self.counted_start(state, entry) < start);
        let end = entries.partition_point(|entry| self.counted_start(state, entry) <= start);
        let before = first.checked_sub(1).map_or(state.base, |last| entries[last].total);
        let last = entries[end - 1].total;
        let (oldest, left) = (self.clamped(distance(before, last)), room - distance(last, current.total));
        let ticks = self.ticks();
        let passed = if oldest <= left { 0 } else { ticks - left * ticks / oldest };
        start.plus(self.window.window()).plus(Span::from_us(passed * self.window.tick().us()))
    }

    fn refund(&self, current: &Current<'_>, mark: Mark, amount: u64) -> Step<RingChange> {
        let status = self.unchanged(current);
        let same_length = current.state.filter(|state| state.bucket == self.bucket());
        let (Mark::Window { start }, Some(state)) = (mark, same_length) else {
            return status.decline(Decline::NotHeld);
        };
        let entries = &state.entries;
        let index = match entries.binary_search_by_key(&start, |entry| entry.time) {
            Ok(index) if index >= current.expired => index,
            _ => return status.decline(Decline::NotHeld),
        };
        if index + REFUND_REACH < entries.len() {
            return status.decline(Decline::TooOld);
        }
        let before = index.checked_sub(1).map_or(state.base, |last| entries[last].total);
        let given = amount.min(distance(before, entries[index].total));
        if given == 0 {
            return status.decline(Decline::NotHeld);
        }
        let mut rest = state.clone();
        rest.take(index, given);
        let after = self.current(Some(&rest), current.now);
        let change = RingChange::Take { index, cost: given };
        self.unchanged(&after).amend(Verdict::Done { amount: current.used - after.used }, change)
    }
}

/// The state at one instant.
struct Current<'s> {
    /// Effective instant.
    now: Time,
    /// Start of the bucket that contains `now`.
    start: Time,
    /// None if it has no entries.
    state: Option<&'s BucketRingState>,
    /// Number of oldest entries that no longer count.
    expired: usize,
    /// Running total of the newest entry.
    total: u64,
    /// Cost of all entries that count, in part or as a whole.
    live: u64,
    /// Units that count against the limit.
    used: u64,
}

impl BucketRingState {
    /// Appends an entry, or raises the total of the newest one if it has the same start.
    fn push(&mut self, start: Time, total: u64) {
        match self.entries.back_mut() {
            Some(newest) if newest.time == start => newest.total = total,
            _ => self.entries.push_back(Entry { time: start, total }),
        }
    }

    fn add(&mut self, expired: usize, start: Time, cost: u64) {
        if let Some(last) = expired.checked_sub(1) {
            self.base = self.entries[last].total;
            self.entries.drain(..expired);
        }
        let total = self.entries.back().map_or(self.base, |newest| newest.total);
        self.cut_oldest((distance(self.base, total) + cost).saturating_sub(EXACT_MAX));
        self.push(start, wrapped(total + cost));
    }

    /// Takes units out of the oldest entries, and drops those that are empty then.
    ///
    /// A charge needs this only if another rule recorded enough units in the oldest bucket that an interpolated window counts a
    /// part of it. More than enough of it stays.
    fn cut_oldest(&mut self, excess: u64) {
        if excess > 0 {
            let dropped = self.entries.partition_point(|entry| distance(self.base, entry.total) <= excess);
            self.entries.drain(..dropped);
            self.base = wrapped(self.base + excess);
        }
    }

    fn take(&mut self, index: usize, cost: u64) {
        let newer = self.entries.range_mut(index..);
        newer.for_each(|entry| entry.total = distance(cost, entry.total));
    }

    /// Converts counts of a window with fewer buckets. The newest bucket is kept even if it is empty, for its time.
    pub(crate) fn from_counts(state: &SlidingWindowState) -> BucketRingState {
        let mut ring = BucketRingState { bucket: state.bucket, ..BucketRingState::default() };
        for (age, &count) in
            state.counts.iter().enumerate().rev().filter(|(age, count)| *age == 0 || **count > 0)
        {
            if let Some(start) = state.newest.us().checked_sub(age as u64 * state.bucket.us()) {
                ring.add(0, Time::from_us(start), count);
            }
        }
        ring
    }

    /// Converts the ring to counts, for a window with fewer buckets. `None` if it has no entries.
    pub(crate) fn to_counts(&self) -> Option<SlidingWindowState> {
        let newest = self.entries.back()?.time;
        let age_of = |entry: &Entry| ((newest - entry.time).us() / self.bucket.us().max(1)) as usize;
        let ages = self.entries.front().map_or(0, age_of).min(BUCKETS_MAX as usize);
        let mut counts = smallvec::smallvec![0; ages + 1];
        let mut before = self.base;
        for entry in &self.entries {
            if let Some(count) = counts.get_mut(age_of(entry)) {
                *count = distance(before, entry.total);
            }
            before = entry.total;
        }
        Some(SlidingWindowState { bucket: self.bucket, newest, counts })
    }
}

impl Machine for BucketRing {
    type State = BucketRingState;
    type Change = RingChange;

    fn capacity(&self) -> u64 {
        self.window.limit()
    }

    fn decide(&self, state: Option<&BucketRingState>, now: Time, operation: &Operation) -> Step<RingChange> {
        let current = self.current(state, now);
        match *operation {
            Operation::Charge { cost, .. } => self.charge(&current, cost),
            Operation::Peek { cost } => self.charge(&current, cost).without_write(),
            Operation::Refund { mark, cost, amount } => self.refund(&current, mark, amount.min(cost)),
            Operation::Record { cost } => self.record(&current, now, cost),
            Operation::Credit { cost } => self.credit(&current, cost),
            _ => self.unchanged(&current).decline(Decline::NotSupported),
        }
    }

    fn commit(slot: &mut Option<BucketRingState>, change: RingChange) {
        match change {
            RingChange::Replace(state) => *slot = Some(state),
            RingChange::Add { expired, start, cost } => {
                slot.get_or_insert_default().add(expired, start, cost);
            }
            RingChange::TakeOldest { dropped, base } => {
                let state = slot.get_or_insert_default();
                state.base = base;
                state.entries.drain(..dropped);
            }
            RingChange::Take { index, cost } => slot.get_or_insert_default().take(index, cost),
        }
    }
}
