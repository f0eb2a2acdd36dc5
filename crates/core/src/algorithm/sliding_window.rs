//! Sliding window: at most `limit` units over the last `window`, counted in `buckets` equal buckets.
//!
//! Windows of more than 64 buckets keep their state as a ring instead, see `bucket_ring.rs`.
//!
//! - Guarantee: strict counting admits at most `limit` units in any window, and may refuse up to one bucket length too
//!   long. Interpolated counting is an estimate: it assumes that the oldest bucket's requests arrived evenly. Records
//!   are not admitted and may exceed the limit.
//! - State: bucket length and start of the newest bucket, both in microseconds, and the units charged in the newest
//!   bucket and the `buckets` before it.
//! - Admits cost c iff strict: `sum of all buckets + c <= limit`; interpolated: `newest buckets + ceil(oldest * overlap)
//!   + c <= limit`, where `overlap` is the part of the oldest bucket that is still inside the window.
//! - Retry at: the first bucket end (strict), or the first tick inside the oldest bucket (interpolated), by which
//!   enough units have left the window.
//! - Key may expire at: `buckets + 1` bucket lengths after the start of the newest bucket that holds units.
//! - Refund: while the state still holds the bucket of the charge, and has buckets of the same number and length.
//! - Record: adds to the newest bucket. A bucket holds at most 2^53 - 1 units, an interpolated one at most (2^53 - 1) /
//!   bucket ticks, and all buckets together at most 2^53 - 1.
//! - Credit: takes units out of the oldest buckets that count, in part or as a whole.
//! - Largest intermediate: strict: the sum of all buckets, saturating. Interpolated: `count * bucket ticks`, at most
//!   2^53 - 1, because larger counts read from a store are clamped.

use smallvec::{SmallVec, smallvec};

use crate::algorithm::machine::{LimitStatus, Machine, Step};
use crate::limit::error::{LimitError, positive, positive_at_most, positive_span};
use crate::plan::answer::{Answer, Decline, Retry, Verdict};
use crate::plan::operation::{Mark, Operation};
use crate::time::{EXACT_MAX, Span, Tick, Time};

/// Largest number of buckets: one per minute of a day.
pub const BUCKETS_MAX: u64 = 1_440;

/// At most `limit` units over the last window, counted in buckets.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SlidingWindow {
    limit: u64,
    /// Length of one bucket.
    bucket: Span,
    /// Buckets per window. The state keeps one more.
    buckets: u64,
    counting: Counting,
    tick: Tick,
}

/// How much of the oldest bucket counts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Counting {
    /// All of it: never admits too much.
    Strict,
    /// The part that overlaps the window, rounded up: an estimate.
    Interpolated,
}

/// Units per bucket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SlidingWindowState {
    /// Length of one bucket. A limit with another length knows that it must convert.
    pub bucket: Span,
    /// First instant of the newest bucket.
    pub newest: Time,
    /// Units charged per bucket, newest first.
    pub counts: Counts,
}

/// An admitted charge that only adds to the newest bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewestBucketCharge {
    /// First instant of the newest bucket.
    newest: Time,
    cost: u64,
    /// Units that count against the limit, including `cost`.
    used: u64,
}

impl NewestBucketCharge {
    /// Adds the charge to the state for which it was computed.
    #[inline]
    pub fn add_to(&self, state: &mut SlidingWindowState) {
        if let Some(newest) = state.counts.first_mut() {
            *newest += self.cost;
        }
    }
}

/// Units by age of the bucket. The default of six buckets fits without a heap allocation.
pub type Counts = SmallVec<[u64; 7]>;

impl SlidingWindow {
    /// Creates a limit of `limit` units per `window`, counted in `buckets` buckets.
    pub fn new(
        limit: u64,
        window: Span,
        buckets: u64,
        counting: Counting,
    ) -> Result<SlidingWindow, LimitError> {
        let limit = positive("limit", limit)?;
        let window = positive_span("window", window)?;
        let buckets = positive_at_most("buckets", buckets, BUCKETS_MAX)?;
        let bucket = bucket_length(window, buckets, Tick::Micro)?;
        let fits = |tick: Tick| limit <= EXACT_MAX / (bucket.us() / tick.us());
        let tick = match counting {
            Counting::Strict => Tick::Micro,
            Counting::Interpolated if fits(Tick::Micro) => Tick::Micro,
            Counting::Interpolated => {
                bucket_length(window, buckets, Tick::Milli)?;
                if !fits(Tick::Milli) {
                    let limit_max = EXACT_MAX / (bucket.us() / Tick::Milli.us());
                    return Err(LimitError::InexactWindow { limit, bucket, limit_max });
                }
                Tick::Milli
            }
        };
        Ok(SlidingWindow { limit, bucket, buckets, counting, tick })
    }

    /// Returns the same limit in a tick in which a bucket holds `times` the limit, so that records have room.
    pub fn with_room(self, times: u64) -> Result<SlidingWindow, LimitError> {
        let room = self.limit.saturating_mul(times);
        if room <= self.count_max() {
            return Ok(self);
        }
        // Only a bucket of whole milliseconds can be counted in them.
        let coarser = SlidingWindow { tick: Tick::Milli, ..self };
        let is_whole = self.bucket.us().is_multiple_of(Tick::Milli.us());
        if is_whole && room <= coarser.count_max() {
            return Ok(coarser);
        }
        let widest = if is_whole { coarser } else { self };
        let max = widest.count_max() / times;
        Err(LimitError::TooLarge { what: "limit", found: self.limit, max })
    }

    /// Returns the units per window.
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the window's length.
    pub const fn window(&self) -> Span {
        Span::from_us(self.bucket.us() * self.buckets)
    }

    /// Returns the number of buckets per window.
    pub const fn buckets(&self) -> u64 {
        self.buckets
    }

    /// Returns how the oldest bucket counts.
    pub const fn counting(&self) -> Counting {
        self.counting
    }

    /// Returns the tick in which it counts time.
    pub const fn tick(&self) -> Tick {
        self.tick
    }

    const fn bucket_ticks(&self) -> u64 {
        self.bucket.us() / self.tick.us()
    }

    /// Returns the state as this limit counts it at `now`.
    ///
    /// A bucket of another length is added as a whole to the bucket that contains its last instant, so units may count
    /// longer than they should but never shorter. The newest such bucket can end after the current one. It is kept in
    /// `ahead` until the next write, so that a retry instant returned now still holds when it is reached.
    fn current(&self, state: Option<&SlidingWindowState>, now: Time) -> Current {
        let mut counts: Counts = smallvec![0; self.buckets as usize + 1];
        let Some(state) = state else {
            return Current { now, start: now.floor(self.bucket), counts, ahead: None };
        };
        let now = now.max(state.newest);
        let start = now.floor(self.bucket);
        let mut ahead = None;
        let count_max = self.count_max();
        for (age, &count) in state.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let Some(first) = state.newest.us().checked_sub(age as u64 * state.bucket.us()) else { break };
            let moved = Time::from_us(first + state.bucket.us() - 1).floor(self.bucket);
            if moved > start {
                ahead = Some((moved, count.min(count_max)));
                continue;
            }
            let age = (start - moved).us() / self.bucket.us();
            if let Some(kept) = counts.get_mut(age as usize) {
                *kept = kept.saturating_add(count).min(count_max);
            }
        }
        Current { now, start, counts, ahead }
    }

    /// Returns the largest count for which no intermediate exceeds 2^53 - 1.
    const fn count_max(&self) -> u64 {
        match self.counting {
            Counting::Strict => EXACT_MAX,
            Counting::Interpolated => EXACT_MAX / self.bucket_ticks(),
        }
    }

    /// Returns the units that count against the limit.
    fn used(&self, current: &Current) -> u64 {
        let ahead = current.ahead.map_or(0, |(_, count)| count);
        self.counted(&current.counts, current.now - current.start).saturating_add(ahead).min(EXACT_MAX)
    }

    /// Returns how much `counts` add up to once `passed` of the newest bucket has elapsed.
    #[inline]
    fn counted(&self, counts: &[u64], passed: Span) -> u64 {
        let (oldest, newer) = counts.split_last().map_or((0, &[][..]), |(last, rest)| (*last, rest));
        let oldest = match self.counting {
            Counting::Strict => oldest,
            Counting::Interpolated => {
                let ticks = self.bucket_ticks();
                let passed = passed.us() / self.tick.us();
                (oldest * (ticks - passed)).div_ceil(ticks)
            }
        };
        sum(newer).saturating_add(oldest)
    }

    fn status(&self, current: &Current, used: u64) -> LimitStatus {
        let newest = match current.ahead {
            Some((start, _)) => Some(start),
            None => {
                let age = current.counts.iter().position(|&count| count > 0);
                age.map(|age| current.start.minus(self.span_of(age as u64)))
            }
        };
        LimitStatus {
            limit: self.limit,
            remaining: self.limit.saturating_sub(used),
            reset_at: newest.map_or(current.now, |start| start.plus(self.span_of(self.buckets + 1))),
        }
    }

    const fn span_of(&self, buckets: u64) -> Span {
        Span::from_us(buckets * self.bucket.us())
    }

    fn charge(&self, mut current: Current, cost: u64) -> Step<SlidingWindowState> {
        let used = self.used(&current);
        let needed = cost.max(1);
        if used + needed > self.limit {
            let retry = self.retry(&current, needed);
            return self.status(&current, used).unchanged(Verdict::Refused(Retry::At(retry)));
        }
        let admitted = Verdict::Admitted { delay: Span::ZERO };
        if cost == 0 {
            return self.status(&current, used).unchanged(admitted);
        }
        let mark = Mark::Window { start: current.start };
        current.counts[0] = current.counts[0].saturating_add(cost).min(self.count_max());
        self.set(current, used + cost, admitted, mark)
    }

    /// Returns an admitted charge of 1 to `limit` units that only adds to the newest bucket, as most charges do.
    ///
    /// `None` means that the charge is refused or needs [`decide`](Machine::decide).
    #[inline]
    pub fn try_charge(&self, state: &SlidingWindowState, now: Time, cost: u64) -> Option<NewestBucketCharge> {
        let SlidingWindowState { bucket, newest, counts } = state;
        let needs_decide = *bucket != self.bucket
            || counts.len() as u64 != self.buckets + 1
            || now >= newest.plus(*bucket)
            // A larger limit wrote this state.
            || counts.iter().any(|&count| count > self.limit);
        if needs_decide {
            return None;
        }
        let used = self.counted(counts, now - *newest) + cost;
        (used <= self.limit).then_some(NewestBucketCharge { newest: *newest, cost, used })
    }

    /// Returns the answer to this charge.
    #[inline]
    pub const fn admission_answer(&self, left: &NewestBucketCharge) -> Answer {
        let (limit, remaining) = (self.limit, self.limit - left.used);
        let status = LimitStatus { limit, remaining, reset_at: self.dies_at(left) };
        let mut answer = status.answer(Verdict::Admitted { delay: Span::ZERO });
        answer.mark = Mark::Window { start: left.newest };
        answer
    }

    /// Returns when the state may expire after this charge.
    #[inline]
    pub const fn dies_at(&self, left: &NewestBucketCharge) -> Time {
        left.newest.plus(self.span_of(self.buckets + 1))
    }

    /// Returns when enough units will have left the window.
    ///
    /// Units in `ahead` leave last. So either the other buckets make enough room, or they are empty by then.
    fn retry(&self, current: &Current, needed: u64) -> Time {
        let room = self.limit - needed;
        match current.ahead {
            None => self.leaves(current.start, &current.counts, room),
            Some((start, count)) if count > room => self.leaves(start, &self.alone(count), room),
            Some((_, count)) => self.leaves(current.start, &current.counts, room - count),
        }
    }

    /// Returns counts with `count` in the newest bucket and zero elsewhere.
    fn alone(&self, count: u64) -> Counts {
        let mut counts: Counts = smallvec![0; self.buckets as usize + 1];
        counts[0] = count;
        counts
    }

    /// Returns when at most `room` of `counts` still count. `start` is the start of the newest bucket.
    fn leaves(&self, start: Time, counts: &[u64], room: u64) -> Time {
        let edge = |ahead: u64| start.plus(self.span_of(ahead));
        let ticks = self.bucket_ticks();
        for ahead in 0..=self.buckets {
            let oldest_age = (self.buckets - ahead) as usize;
            let Some(room) = room.checked_sub(sum(&counts[..oldest_age])) else { continue };
            let oldest = counts[oldest_age];
            let passed = match self.counting {
                _ if oldest <= room => 0,
                Counting::Strict => ticks,
                Counting::Interpolated => ticks - room * ticks / oldest,
            };
            if passed < ticks {
                return edge(ahead).plus(Span::from_us(passed * self.tick.us()));
            }
        }
        edge(self.buckets + 1)
    }

    /// Takes units out of the bucket of the charge. The amount is what counts less: of the oldest bucket, only the part
    /// inside the window counts.
    fn refund(
        &self,
        state: Option<&SlidingWindowState>,
        current: &Current,
        mark: Mark,
        amount: u64,
    ) -> Step<SlidingWindowState> {
        let used = self.used(current);
        let decline = |why| self.status(current, used).decline(why);
        let Some(state) = state else { return decline(Decline::NotHeld) };
        if state.bucket != self.bucket || state.counts.len() as u64 != self.buckets + 1 {
            return decline(Decline::WindowChanged);
        }
        let Mark::Window { start } = mark else { return decline(Decline::NotHeld) };
        let age =
            state.newest.us().checked_sub(start.us()).filter(|age| age.is_multiple_of(self.bucket.us()));
        let has_left = current.now - start >= self.span_of(self.buckets + 1);
        let mut next = state.clone();
        let held = age.filter(|_| !has_left).and_then(|age| {
            next.counts.get_mut((age / self.bucket.us()) as usize).filter(|count| **count > 0)
        });
        let Some(count) = held else { return decline(Decline::NotHeld) };
        *count -= amount.min(*count);
        let current = self.current(Some(&next), current.now);
        let rest = self.used(&current);
        self.status(&current, rest).amend(Verdict::Done { amount: used - rest }, next)
    }

    fn record(&self, mut current: Current, now: Time, cost: u64) -> Step<SlidingWindowState> {
        let mut folded = current.clone();
        self.fold_ahead(&mut folded);
        let bucket_room = self.count_max().saturating_sub(folded.counts[0]);
        let amount = cost.min(bucket_room).min(EXACT_MAX - sum(&folded.counts));
        if amount > 0 {
            folded.counts[0] += amount;
            current = folded;
        }
        let used = self.used(&current);
        let recorded = Verdict::Recorded {
            amount,
            overdraft: used.saturating_sub(self.limit),
            free_at: if used < self.limit { now } else { self.retry(&current, 1) },
        };
        if amount == 0 {
            return self.status(&current, used).unchanged(recorded);
        }
        let mark = Mark::Window { start: current.start };
        self.set(current, used, recorded, mark)
    }

    /// Takes units out of the oldest buckets. The amount is what counts less, as in a refund.
    fn credit(&self, mut current: Current, cost: u64) -> Step<SlidingWindowState> {
        let used = self.used(&current);
        if cost == 0 || used == 0 {
            return self.status(&current, used).unchanged(Verdict::Done { amount: 0 });
        }
        self.fold_ahead(&mut current);
        let mut missing = cost;
        for count in current.counts.iter_mut().rev() {
            let taken = missing.min(*count);
            *count -= taken;
            missing -= taken;
        }
        let rest = self.used(&current);
        let mut step =
            self.set(current, rest, Verdict::Done { amount: used.saturating_sub(rest) }, Mark::None);
        if let (0, Some(write)) = (rest, &mut step.write) {
            write.dies_at = None;
        }
        step
    }

    /// Adds a bucket that ends after the current one to the current one.
    fn fold_ahead(&self, current: &mut Current) {
        if let Some((_, count)) = current.ahead.take() {
            current.counts[0] = current.counts[0].saturating_add(count).min(self.count_max());
        }
    }

    fn set(&self, mut current: Current, used: u64, verdict: Verdict, mark: Mark) -> Step<SlidingWindowState> {
        self.fold_ahead(&mut current);
        let status = self.status(&current, used);
        let next = SlidingWindowState { bucket: self.bucket, newest: current.start, counts: current.counts };
        status.write(verdict, mark, next, status.reset_at)
    }
}

/// The state, converted to this limit's buckets and moved to one instant.
#[derive(Clone)]
struct Current {
    /// Effective instant.
    now: Time,
    /// Start of the bucket that contains `now`.
    start: Time,
    /// Units by age of the bucket.
    counts: Counts,
    /// Start and units of a bucket of another length that ends after the current one.
    ahead: Option<(Time, u64)>,
}

fn sum(counts: &[u64]) -> u64 {
    counts.iter().fold(0, |sum: u64, count| sum.saturating_add(*count).min(EXACT_MAX))
}

/// Returns the bucket length if the window divides into `buckets` buckets of whole ticks.
fn bucket_length(window: Span, buckets: u64, tick: Tick) -> Result<Span, LimitError> {
    let even = |buckets: u64| window.us().is_multiple_of(buckets * tick.us());
    if even(buckets) {
        return Ok(Span::from_us(window.us() / buckets));
    }
    let below = (1..buckets).rev().find(|&n| even(n));
    let above = (buckets + 1..=BUCKETS_MAX).find(|&n| even(n));
    let tick = match tick {
        Tick::Micro => "microsecond",
        Tick::Milli => "millisecond",
    };
    Err(LimitError::UnevenBuckets { window, buckets, tick, below, above })
}

impl Machine for SlidingWindow {
    type State = SlidingWindowState;
    type Change = SlidingWindowState;

    fn capacity(&self) -> u64 {
        self.limit
    }

    fn decide(
        &self,
        state: Option<&SlidingWindowState>,
        now: Time,
        operation: &Operation,
    ) -> Step<SlidingWindowState> {
        let current = self.current(state, now);
        match *operation {
            Operation::Charge { cost, .. } => self.charge(current, cost),
            Operation::Peek { cost } => self.charge(current, cost).without_write(),
            Operation::Refund { mark, cost, amount } => self.refund(state, &current, mark, amount.min(cost)),
            Operation::Record { cost } => self.record(current, now, cost),
            Operation::Credit { cost } => self.credit(current, cost),
            _ => {
                let used = self.used(&current);
                self.status(&current, used).decline(Decline::NotSupported)
            }
        }
    }

    fn commit(slot: &mut Option<SlidingWindowState>, change: SlidingWindowState) {
        *slot = Some(change);
    }
}
