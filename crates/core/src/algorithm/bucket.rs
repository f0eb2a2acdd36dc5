//! Token bucket, leaky bucket as a meter, and leaky bucket as a shaper: one debt that drains at a fixed rate.
//!
//! One unit of cost is `scale` units of debt. Every tick drains `drain` units of debt. `drain / scale` is the rate per
//! tick in lowest terms, so nothing is rounded.
//!
//! - Guarantee: in any time t, at most `capacity + rate * t` units are admitted. A shaper admits a unit with a delay,
//!   so that units proceed at the rate. Records are not admitted and may exceed it.
//! - State: debt in `1 / scale` units of cost, the instant at which it was that much, in microseconds, and `scale`.
//! - Admits cost c iff `debt + c * scale <= capacity * scale`. A shaper with a queue of q has the capacity q + 1.
//! - Retry at: now + `ceil((debt + c * scale - capacity * scale) / drain)` ticks.
//! - Key may expire at: the instant at which the debt is drained.
//! - Refund: the part of the charge that has not drained since. A shaper gives nothing back.
//! - Record: adds to the debt, above the capacity too, up to the debt that drains in 31 days or in two fill times,
//!   whichever is longer, and at most 2^53 - 1 - `capacity * scale`. A shaper answers when the units may proceed.
//! - Credit: subtracts from what is left of the debt, but not below zero. A shaper declines.
//! - Largest intermediate: `debt + cost * scale`, at most 2^53 - 1. [`Bucket`] requires `2 * capacity * scale <= 2^53 -
//!   1`, and a debt read from a store is clamped so that one capacity still fits.

use crate::algorithm::machine::{LimitStatus, Machine, Step, Write};
use crate::limit::error::{LimitError, positive, positive_span};
use crate::plan::answer::{Answer, Decline, Retry, Verdict};
use crate::plan::operation::{Mark, Operation};
use crate::time::{EXACT_MAX, Span, Tick, Time};

/// Longest time that a recorded debt takes to drain, unless two fill times are longer.
const OVERDRAFT_MAX: Span = Span::from_secs(31 * 86_400);

/// A debt of at most `capacity` units that drains at `rate` units per `period`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Bucket {
    capacity: u64,
    /// Debt per unit of cost.
    scale: u64,
    /// Debt drained per tick.
    drain: u64,
    tick: Tick,
    kind: BucketKind,
}

/// What the debt means to callers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BucketKind {
    /// Token bucket: admits at once while saved-up tokens are left.
    Tokens,
    /// Leaky bucket as a meter: admits at once while there is room.
    Meter,
    /// Leaky bucket as a shaper: admits with a delay, each unit after the ones before it.
    Queue,
}

/// A debt at an instant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BucketState {
    /// Debt in `1 / scale` units of cost.
    pub debt: u64,
    /// The instant at which `debt` was that much.
    pub time: Time,
    /// Debt per unit of cost. A limit with another scale knows that it must convert.
    pub scale: u64,
}

impl Bucket {
    /// Creates a token bucket: `rate` tokens per `period`, saved up to `capacity`.
    pub fn tokens(rate: u64, period: Span, capacity: u64) -> Result<Bucket, LimitError> {
        Bucket::new(rate, period, capacity, BucketKind::Tokens)
    }

    /// Creates a leaky bucket that refuses above `capacity`.
    pub fn meter(rate: u64, period: Span, capacity: u64) -> Result<Bucket, LimitError> {
        Bucket::new(rate, period, capacity, BucketKind::Meter)
    }

    /// Creates a leaky bucket that delays. At most `queue` units wait behind the one that proceeds.
    pub fn queue(rate: u64, period: Span, queue: u64) -> Result<Bucket, LimitError> {
        Bucket::new(rate, period, positive("queue", queue)?.saturating_add(1), BucketKind::Queue)
    }

    fn new(rate: u64, period: Span, capacity: u64, kind: BucketKind) -> Result<Bucket, LimitError> {
        let rate = positive("rate", rate)?;
        let period = positive_span("period", period)?;
        let capacity = positive("capacity", capacity)?;
        [Tick::Micro, Tick::Milli].into_iter().find_map(|tick| fit(rate, period, capacity, tick)).map_or_else(
            || Err(inexact(rate, period, capacity)),
            |(scale, drain, tick)| Ok(Bucket { capacity, scale, drain, tick, kind }),
        )
    }

    /// Returns the same limit in a tick in which `times` its capacity fits beside one capacity, so that records have room.
    pub fn with_room(self, times: u64) -> Result<Bucket, LimitError> {
        let has_room = |bucket: &Bucket| {
            let largest =
                bucket.capacity.checked_mul(bucket.scale).and_then(|one| one.checked_mul(times + 1));
            largest.is_some_and(|largest| largest <= EXACT_MAX)
        };
        let coarser = || {
            let drain = self.drain.checked_mul(Tick::Milli.us()).filter(|_| self.tick == Tick::Micro)?;
            let common = gcd(drain, self.scale);
            let bucket =
                Bucket { scale: self.scale / common, drain: drain / common, tick: Tick::Milli, ..self };
            (bucket.drain <= EXACT_MAX).then_some(bucket)
        };
        if has_room(&self) {
            return Ok(self);
        }
        coarser().filter(has_room).ok_or_else(|| LimitError::TooLarge {
            what: "capacity",
            found: self.capacity,
            max: EXACT_MAX / (times + 1) / coarser().map_or(self.scale, |bucket| bucket.scale),
        })
    }

    /// Returns the same rate with a smaller capacity, or `None` if it is 0 or larger.
    pub fn with_capacity(self, capacity: u64) -> Option<Bucket> {
        (1..=self.capacity).contains(&capacity).then_some(Bucket { capacity, ..self })
    }

    /// Returns the largest debt, in units of cost.
    #[inline]
    pub const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Returns whether it is a token bucket, a meter or a shaper.
    pub const fn kind(&self) -> BucketKind {
        self.kind
    }

    /// Returns the tick in which it counts time.
    pub const fn tick(&self) -> Tick {
        self.tick
    }

    /// Returns the exact rate per tick as a fraction in lowest terms: (debt drained per tick, debt per unit of cost).
    #[inline]
    pub const fn rate(&self) -> (u64, u64) {
        (self.drain, self.scale)
    }

    /// Returns how long a full debt takes to drain.
    pub const fn fill_time(&self) -> Span {
        self.ticks((self.capacity * self.scale).div_ceil(self.drain))
    }

    #[inline]
    const fn ticks(&self, ticks: u64) -> Span {
        Span::from_us(ticks.saturating_mul(self.tick.us()))
    }

    #[inline]
    const fn ceiling(&self) -> u64 {
        self.capacity * self.scale
    }

    /// Returns the debt in this limit's scale and the effective instant: `now` in whole ticks, but not before the
    /// state's time.
    #[inline(always)]
    fn current(&self, state: Option<&BucketState>, now: Time) -> (u64, Time) {
        let tick = Span::from_us(self.tick.us());
        let now = now.floor(tick);
        let Some(state) = state else { return (0, now) };
        let last = state.time.ceil(tick);
        let now = now.max(last);
        let debt = convert(state.debt, state.scale, self.scale).min(EXACT_MAX - self.ceiling());
        let drained = self.tick.whole_in(now - last).saturating_mul(self.drain);
        (debt.saturating_sub(drained), now)
    }

    #[inline]
    fn status(&self, debt: u64, now: Time) -> LimitStatus {
        LimitStatus {
            limit: self.capacity,
            remaining: self.ceiling().saturating_sub(debt) / self.scale,
            reset_at: now.plus(self.drained_in(debt)),
        }
    }

    /// Returns how long this debt takes to drain. Most rates drain 1 per tick, which needs no division.
    #[inline]
    const fn drained_in(&self, debt: u64) -> Span {
        self.ticks(if self.drain == 1 { debt } else { debt.div_ceil(self.drain) })
    }

    #[inline]
    fn charge(&self, debt: u64, now: Time, cost: u64) -> Step<BucketState> {
        let needed = debt + cost.max(1) * self.scale;
        if needed > self.ceiling() {
            let wait = self.ticks((needed - self.ceiling()).div_ceil(self.drain));
            return self.status(debt, now).unchanged(Verdict::Refused(Retry::At(now.plus(wait))));
        }
        if cost == 0 {
            return self.status(debt, now).unchanged(Verdict::Admitted { delay: self.delay(debt) });
        }
        let left = BucketState { debt: debt + cost * self.scale, time: now, scale: self.scale };
        let answer = self.admission_answer(&left, cost);
        Step { answer, write: Some(Write { change: left, dies_at: Some(answer.reset_at) }) }
    }

    /// Returns the state after a charge of 1 to `capacity` units, or `None` if it is refused.
    ///
    /// This is all that a store must compute under a lock. Only [`admission_answer`](Self::admission_answer) divides.
    #[inline]
    pub fn try_charge(&self, state: Option<&BucketState>, now: Time, cost: u64) -> Option<BucketState> {
        let (debt, time) = self.current(state, now);
        let debt = debt + cost * self.scale;
        (debt <= self.ceiling()).then_some(BucketState { debt, time, scale: self.scale })
    }

    /// Returns the answer to the charge of `cost` that produced the state `left`.
    #[inline]
    pub fn admission_answer(&self, left: &BucketState, cost: u64) -> Answer {
        let (debt, now) = (left.debt - cost * self.scale, left.time);
        let mark = match self.kind {
            BucketKind::Queue => Mark::None,
            BucketKind::Tokens | BucketKind::Meter => Mark::At { time: now },
        };
        let verdict = Verdict::Admitted { delay: self.delay(debt) };
        Answer { mark, ..self.status(left.debt, now).answer(verdict) }
    }

    /// Returns how long a request that is admitted behind this debt must wait.
    #[inline]
    const fn delay(&self, debt: u64) -> Span {
        match self.kind {
            BucketKind::Queue => self.ticks(debt.div_ceil(self.drain)),
            BucketKind::Tokens | BucketKind::Meter => Span::ZERO,
        }
    }

    /// Refunds the part of a charge that has not drained since. Subtracts it from the debt at its stored instant and in
    /// its stored scale, at most what is left of that debt now.
    fn refund(
        &self,
        state: Option<&BucketState>,
        now: Time,
        charged_at: Time,
        (cost, amount): (u64, u64),
    ) -> Step<BucketState> {
        let (debt, at) = self.current(state, now);
        let decline = || self.status(debt, at).decline(Decline::NotHeld);
        let Some(state) = state else { return decline() };
        let tick = Span::from_us(self.tick.us());
        // Debt that has drained since this instant, in this limit's scale.
        let drained_since =
            |since: Time| self.tick.whole_in(at - since).saturating_mul(self.drain).min(EXACT_MAX);
        // No charge and no record is larger.
        let cost = cost.min((EXACT_MAX - self.ceiling()) / self.scale);
        let left = (cost * self.scale).saturating_sub(drained_since(charged_at.floor(tick)));
        let left = left.min(amount.min(cost) * self.scale);
        let drained = convert(drained_since(state.time.ceil(tick)), self.scale, state.scale);
        let given = convert_down(left, self.scale, state.scale).min(state.debt.saturating_sub(drained));
        if given == 0 {
            return decline();
        }
        let next = BucketState { debt: state.debt - given, ..*state };
        let (debt, at) = self.current(Some(&next), now);
        self.status(debt, at).amend(Verdict::Done { amount: given / state.scale }, next)
    }

    /// Returns the largest debt that records bring about.
    fn debt_max(&self) -> u64 {
        let month = self.tick.whole_in(OVERDRAFT_MAX).saturating_mul(self.drain);
        month.max(2 * self.ceiling()).min(EXACT_MAX - self.ceiling())
    }

    fn record(&self, debt: u64, at: Time, now: Time, cost: u64) -> Step<BucketState> {
        let amount = cost.min(self.debt_max().saturating_sub(debt) / self.scale);
        let left = BucketState { debt: debt + amount * self.scale, time: at, scale: self.scale };
        let excess = (left.debt + self.scale).saturating_sub(self.ceiling());
        let free_at = match self.kind {
            BucketKind::Queue => now.plus(self.delay(debt)),
            _ if excess == 0 => now,
            BucketKind::Tokens | BucketKind::Meter => at.plus(self.drained_in(excess)),
        };
        let overdraft = left.debt.saturating_sub(self.ceiling()).div_ceil(self.scale);
        let recorded = Verdict::Recorded { amount, overdraft, free_at };
        let status = self.status(left.debt, at);
        if amount == 0 {
            return status.unchanged(recorded);
        }
        let mark = match self.kind {
            BucketKind::Queue => Mark::None,
            BucketKind::Tokens | BucketKind::Meter => Mark::At { time: at },
        };
        status.write(recorded, mark, left, status.reset_at)
    }

    fn credit(&self, debt: u64, at: Time, cost: u64) -> Step<BucketState> {
        // The cost is cut before it is multiplied.
        let given = (cost.min(debt.div_ceil(self.scale)) * self.scale).min(debt);
        let next = BucketState { debt: debt - given, time: at, scale: self.scale };
        let (status, done) = (self.status(next.debt, at), Verdict::Done { amount: given / self.scale });
        match next.debt {
            _ if given == 0 => status.unchanged(done),
            0 => status.amend(done, next),
            _ => status.write(done, Mark::None, next, status.reset_at),
        }
    }
}

/// Converts `debt` from `1 / from` units to `1 / to` units, rounded up and at most [`EXACT_MAX`].
#[inline]
fn convert(debt: u64, from: u64, to: u64) -> u64 {
    if from == to { debt } else { convert_dividing(debt, from, to) }
}

#[inline(never)]
fn convert_dividing(debt: u64, from: u64, to: u64) -> u64 {
    let exact = (u128::from(debt) * u128::from(to)).div_ceil(u128::from(from));
    exact.min(u128::from(EXACT_MAX)) as u64
}

/// Converts `debt` from `1 / from` units to `1 / to` units, rounded down and at most [`EXACT_MAX`].
fn convert_down(debt: u64, from: u64, to: u64) -> u64 {
    let exact = u128::from(debt) * u128::from(to) / u128::from(from);
    exact.min(u128::from(EXACT_MAX)) as u64
}

/// Returns scale and drain in this tick, if the largest intermediate fits.
fn fit(rate: u64, period: Span, capacity: u64, tick: Tick) -> Option<(u64, u64, Tick)> {
    if !period.us().is_multiple_of(tick.us()) {
        return None;
    }
    let ticks = period.us() / tick.us();
    let common = gcd(rate, ticks);
    let (drain, scale) = (rate / common, ticks / common);
    let largest = capacity.checked_mul(scale)?.checked_mul(2)?;
    (largest <= EXACT_MAX).then_some((scale, drain, tick))
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Returns the error for numbers that fit in no tick, with numbers that would fit.
fn inexact(rate: u64, period: Span, capacity: u64) -> LimitError {
    let ticks = [Tick::Micro, Tick::Milli];
    let capacity_max = ticks
        .into_iter()
        .filter_map(|tick| fit(rate, period, 1, tick))
        .map(|(scale, ..)| EXACT_MAX / 2 / scale)
        .max();
    // A rate fits when it is a multiple of period / n for a small enough n.
    let scale_max = EXACT_MAX / 2 / capacity;
    let amount_that_fits = ticks
        .into_iter()
        .filter(|tick| period.us().is_multiple_of(tick.us()))
        .filter_map(|tick| {
            let ticks = period.us() / tick.us();
            let step = ticks / largest_divisor(ticks, scale_max)?;
            Some((rate / step * step).max(step))
        })
        .filter(|&near| near <= EXACT_MAX)
        .min_by_key(|near| near.abs_diff(rate));
    LimitError::Inexact { rate, period, capacity, capacity_max, amount_that_fits }
}

/// Returns the largest divisor of `n` up to `max`, among those made of the small primes that occur in real periods.
fn largest_divisor(n: u64, max: u64) -> Option<u64> {
    let mut divisors = vec![1_u64];
    let mut rest = n;
    for prime in [2, 3, 5, 7, 11, 13, 31, 61, 73] {
        let mut power = 1;
        let smaller = divisors.clone();
        while rest.is_multiple_of(prime) {
            rest /= prime;
            power *= prime;
            divisors.extend(smaller.iter().map(|divisor| divisor * power));
        }
    }
    divisors.into_iter().filter(|&divisor| divisor <= max).max()
}

impl Machine for Bucket {
    type State = BucketState;
    type Change = BucketState;

    fn capacity(&self) -> u64 {
        self.capacity
    }

    #[inline]
    fn decide(&self, state: Option<&BucketState>, now: Time, operation: &Operation) -> Step<BucketState> {
        let (debt, at) = self.current(state, now);
        match (*operation, self.kind) {
            (Operation::Charge { cost, .. }, _) => self.charge(debt, at, cost),
            (Operation::Peek { cost }, _) => self.charge(debt, at, cost).without_write(),
            (Operation::Refund { mark, cost, amount }, BucketKind::Tokens | BucketKind::Meter) => {
                match mark {
                    Mark::At { time } => self.refund(state, now, time, (cost, amount)),
                    _ => self.status(debt, at).decline(Decline::NotHeld),
                }
            }
            (Operation::Record { cost }, _) => self.record(debt, at, now, cost),
            (Operation::Credit { cost }, BucketKind::Tokens | BucketKind::Meter) => {
                self.credit(debt, at, cost)
            }
            _ => self.status(debt, at).decline(Decline::NotSupported),
        }
    }

    fn commit(slot: &mut Option<BucketState>, change: BucketState) {
        *slot = Some(change);
    }
}
