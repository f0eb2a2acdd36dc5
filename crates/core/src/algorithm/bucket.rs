//! One machine for the token bucket, the leaky bucket as a meter and the leaky bucket as a shaper.
//!
//! The state is a debt that drains. A unit of cost is `scale` units of debt and every tick drains `drain` of
//! them, where `drain / scale` is the rate per tick in lowest terms: nothing is ever rounded.
//!
//! Largest intermediate: `debt + cost * scale`, at most 2^53 - 1, because the loader demands
//! `2 * capacity * scale <= 2^53 - 1` and a debt read from a store is cut to what leaves room for one capacity.

use crate::algorithm::machine::{LimitStatus, Machine, Step, Write};
use crate::answer::{Answer, Decline, Retry, Verdict};
use crate::limit::error::{LimitError, positive, positive_span};
use crate::plan::operation::{Mark, Operation};
use crate::time::{EXACT_MAX, Span, Tick, Time};

/// A debt of at most `capacity` that drains at `amount` per `period`.
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

/// What a full bucket means to who asks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BucketKind {
    /// Tokens saved up: admit at once while there are some.
    Tokens,
    /// A meter that overflows: admit at once while there is room.
    Meter,
    /// A queue: admit with a delay, each unit behind the ones before it.
    Queue,
}

/// A debt at an instant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BucketState {
    /// Debt in `1 / scale` units of cost.
    pub debt: u64,
    /// When it was that much.
    pub time: Time,
    /// Debt per unit of cost; a rule with another scale sees that it must convert.
    pub scale: u64,
}

impl Bucket {
    /// A token bucket: `amount` per `period`, saved up to `capacity`.
    pub fn tokens(rate: u64, period: Span, capacity: u64) -> Result<Bucket, LimitError> {
        Bucket::new(rate, period, capacity, BucketKind::Tokens)
    }

    /// A leaky bucket that refuses above `capacity`.
    pub fn meter(rate: u64, period: Span, capacity: u64) -> Result<Bucket, LimitError> {
        Bucket::new(rate, period, capacity, BucketKind::Meter)
    }

    /// A leaky bucket that delays, with at most `queue` units waiting behind the one that passes.
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

    /// The largest debt in whole units.
    #[inline]
    pub const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Which of the three readings it is.
    pub const fn kind(&self) -> BucketKind {
        self.kind
    }

    /// The tick it counts in.
    pub const fn tick(&self) -> Tick {
        self.tick
    }

    /// The exact rate per tick as a fraction in lowest terms: (units drained, units of debt per unit of cost).
    pub const fn rate(&self) -> (u64, u64) {
        (self.drain, self.scale)
    }

    /// How long a full debt takes to drain.
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

    /// The debt at `now`, in this limit's scale, and the instant it holds for: whole ticks, never before the
    /// state's own.
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

    /// How long this debt takes to drain. Most rates drain one at a time, which saves a division.
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
        Step { answer, write: Some(Write { change: left, dies_at: answer.reset_at }) }
    }

    /// What a charge of 1 to `capacity` leaves behind, if it is admitted: all that a store must find out under a lock. It
    /// takes no division; those are for the numbers that people see.
    #[inline]
    pub fn try_charge(&self, state: Option<&BucketState>, now: Time, cost: u64) -> Option<BucketState> {
        let (debt, time) = self.current(state, now);
        let debt = debt + cost * self.scale;
        (debt <= self.ceiling()).then_some(BucketState { debt, time, scale: self.scale })
    }

    /// The answer to the charge of `cost` that left this behind.
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

    /// How long who comes after this debt has to wait.
    #[inline]
    const fn delay(&self, debt: u64) -> Span {
        match self.kind {
            BucketKind::Queue => self.ticks(debt.div_ceil(self.drain)),
            BucketKind::Tokens | BucketKind::Meter => Span::ZERO,
        }
    }

    /// Gives back the part of a charge that has not drained since.
    fn refund(&self, debt: u64, now: Time, charged_at: Time, cost: u64) -> Step<BucketState> {
        let tick = Span::from_us(self.tick.us());
        let elapsed = (now - charged_at.floor(tick)).us() / self.tick.us();
        let charged = cost.min(self.capacity) * self.scale;
        if elapsed >= charged.div_ceil(self.drain) || debt == 0 {
            return self.status(debt, now).decline(Decline::NotHeld);
        }
        let given = (charged - elapsed * self.drain).min(debt);
        self.set(debt - given, now, Verdict::Done { amount: given / self.scale }, Mark::None)
    }

    #[inline]
    fn set(&self, debt: u64, time: Time, verdict: Verdict, mark: Mark) -> Step<BucketState> {
        let status = self.status(debt, time);
        status.write(verdict, mark, BucketState { debt, time, scale: self.scale }, status.reset_at)
    }
}

/// `debt` counted in `1 / to` instead of `1 / from` units, rounded up; at most [`EXACT_MAX`].
#[inline]
fn convert(debt: u64, from: u64, to: u64) -> u64 {
    if from == to { debt } else { convert_dividing(debt, from, to) }
}

#[inline(never)]
fn convert_dividing(debt: u64, from: u64, to: u64) -> u64 {
    let exact = (u128::from(debt) * u128::from(to)).div_ceil(u128::from(from));
    exact.min(u128::from(EXACT_MAX)) as u64
}

/// Scale and drain in this tick, if the largest intermediate fits.
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

/// The error for numbers that fit in no tick, with numbers that do.
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

/// The largest divisor of `n` up to `max` that has only the small prime factors real periods are made of.
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
        let (debt, now) = self.current(state, now);
        match (*operation, self.kind) {
            (Operation::Charge { cost, .. }, _) => self.charge(debt, now, cost),
            (Operation::Peek { cost }, _) => self.charge(debt, now, cost).without_write(),
            (Operation::Refund { mark: Mark::At { time }, cost }, BucketKind::Tokens | BucketKind::Meter) => {
                self.refund(debt, now, time, cost)
            }
            (Operation::Refund { .. }, BucketKind::Tokens | BucketKind::Meter) => {
                self.status(debt, now).decline(Decline::NotHeld)
            }
            _ => self.status(debt, now).decline(Decline::NotSupported),
        }
    }

    fn commit(slot: &mut Option<BucketState>, change: BucketState) {
        *slot = Some(change);
    }
}
