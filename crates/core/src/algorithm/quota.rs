//! Quota: an allowance per calendar period, or per period that starts with the first use, with reservations.
//!
//! - Guarantee: no period admits more than `allowance + grace` units. A settlement may exceed what was reserved.
//! - State: start and end of the newest period seen and the newest effective instant of a write, all in microseconds,
//!   units used, and the open reservations, ordered by their end.
//! - Admits cost c iff `used + reserved + c <= allowance + grace`.
//! - Retry at: when enough reservations will have expired, or at the end of the period, whichever is earlier.
//! - Key may expire at: the end of the period.
//! - Refund: only in the period of the charge. A reservation is settled or cancelled instead.
//! - Largest intermediate: `used + reserved + cost`, below 2^55, compared with at most 2^53 - 1.

use crate::algorithm::machine::{LimitStatus, Machine, Step};
use crate::answer::{Decline, Retry, Verdict};
use crate::calendar::Periods;
use crate::limit::error::{LimitError, positive, positive_span};
use crate::plan::operation::{Mark, Operation, Token};
use crate::time::{EXACT_MAX, Span, Time};

/// Largest number of open reservations per subject.
pub const RESERVATIONS_MAX: usize = 4_096;

/// At most `allowance + grace` units per period.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Quota {
    allowance: u64,
    grace: u64,
    period: QuotaPeriod,
}

/// When a quota's period begins and ends.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum QuotaPeriod {
    /// Calendar periods. The caller computed them around its own clock; the store chooses one by its clock.
    Calendar(Periods),
    /// A period of this length that starts with the first use.
    Rolling(Span),
}

/// Units used and reserved in the newest period seen.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct QuotaState {
    /// First instant of the period.
    pub start: Time,
    /// First instant after the period.
    pub end: Time,
    /// The newest effective instant of a write.
    pub seen: Time,
    /// Units consumed.
    pub used: u64,
    /// Open reservations, ordered by `until`, earliest first.
    pub reservations: Vec<Reservation>,
}

/// Units held until they are settled, cancelled or expired.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reservation {
    /// When it expires.
    pub until: Time,
    /// The owner's token.
    pub token: Token,
    /// Units held.
    pub cost: u64,
}

/// What a decision asks to write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QuotaChange {
    /// First instant of the period in force.
    pub start: Time,
    /// First instant after it.
    pub end: Time,
    /// The effective instant. Reservations that have expired by then are dropped.
    pub now: Time,
    /// Units consumed in the period.
    pub used: u64,
    /// Whether a new period begins, which drops the reservations of the old one.
    pub fresh: bool,
    /// Token of the reservation to remove, if it exists.
    pub remove: Token,
    /// The reservation to add.
    pub add: Option<Reservation>,
}

impl Quota {
    /// Creates a quota of `allowance` units per `period`, with `grace` extra units.
    pub fn new(allowance: u64, grace: u64, period: QuotaPeriod) -> Result<Quota, LimitError> {
        let allowance = positive("quota", allowance)?;
        if grace > EXACT_MAX - allowance {
            return Err(LimitError::TooLarge { what: "grace", found: grace, max: EXACT_MAX - allowance });
        }
        if let QuotaPeriod::Rolling(length) = period {
            positive_span("period", length)?;
        }
        Ok(Quota { allowance, grace, period })
    }

    /// Returns the units per period, without grace.
    pub const fn allowance(&self) -> u64 {
        self.allowance
    }

    /// Returns the extra units that are admitted but not reported as remaining.
    pub const fn grace(&self) -> u64 {
        self.grace
    }

    /// Returns when its periods begin and end.
    pub const fn period(&self) -> QuotaPeriod {
        self.period
    }

    fn ceiling(&self) -> u64 {
        self.allowance + self.grace
    }

    /// Returns the period in force at `now` and the units that count, or the instant that the periods do not cover.
    ///
    /// Units count until the end of the calendar period in which they were charged, even if that period had other
    /// boundaries. A rolling period keeps its start; the length in force decides its end.
    fn current<'s>(&self, state: Option<&'s QuotaState>, now: Time) -> Result<Current<'s>, Time> {
        let now = state.map_or(now, |state| now.max(state.seen));
        let (start, end, carried) = match self.period {
            QuotaPeriod::Calendar(periods) => {
                let (start, end) = periods.containing(now).ok_or(now)?;
                (start, end, state.filter(|state| now < state.end))
            }
            QuotaPeriod::Rolling(length) => match state {
                Some(state) if now < state.start.plus(length) => {
                    (state.start, state.start.plus(length), Some(state))
                }
                _ => (now, now.plus(length), None),
            },
        };
        let rolling = matches!(self.period, QuotaPeriod::Rolling(_));
        Ok(match carried {
            Some(state) => {
                let free_at = if rolling { end } else { state.end };
                let ended = state.reservations.partition_point(|held| held.until <= now);
                let held = &state.reservations[ended..];
                Current { now, start, end, used: state.used, held, free_at, fresh: false }
            }
            None => {
                let free_at = if rolling { now } else { end };
                Current { now, start, end, used: 0, held: &[], free_at, fresh: true }
            }
        })
    }

    fn status(&self, current: &Current<'_>) -> LimitStatus {
        LimitStatus {
            limit: self.allowance,
            remaining: self.allowance.saturating_sub(current.used + current.reserved()),
            reset_at: current.free_at,
        }
    }

    fn refuse(&self, current: &Current<'_>, needed: u64) -> Step<QuotaChange> {
        let retry = self.retry(current, needed);
        self.status(current).unchanged(Verdict::Refused(Retry::At(retry)))
    }

    /// Returns when enough reservations will have expired, or the end of the period if that is earlier.
    fn retry(&self, current: &Current<'_>, needed: u64) -> Time {
        let mut wanted = current.used + current.reserved() + needed;
        let ended = current.held.iter().find(|held| {
            wanted -= held.cost;
            wanted <= self.ceiling()
        });
        ended.map_or(current.free_at, |held| held.until.min(current.free_at))
    }

    fn fits(&self, current: &Current<'_>, needed: u64) -> bool {
        current.used + current.reserved() + needed <= self.ceiling()
    }

    fn charge(&self, current: &Current<'_>, cost: u64) -> Step<QuotaChange> {
        let needed = cost.max(1);
        if !self.fits(current, needed) {
            return self.refuse(current, needed);
        }
        let admitted = Verdict::Admitted { delay: Span::ZERO };
        if cost == 0 {
            return self.status(current).unchanged(admitted);
        }
        let mark = Mark::Window { start: current.start };
        self.set(current, admitted, mark, QuotaChange { used: current.used + cost, ..current.unchanged() })
    }

    fn reserve(&self, current: &Current<'_>, cost: u64, token: Token, hold: Span) -> Step<QuotaChange> {
        let needed = cost.max(1);
        if current.find(token).is_some() {
            return self.status(current).decline(Decline::TokenInUse);
        }
        if !self.fits(current, needed) {
            return self.refuse(current, needed);
        }
        if current.held.len() >= RESERVATIONS_MAX {
            return self.status(current).decline(Decline::TooManyReservations);
        }
        let admitted = Verdict::Admitted { delay: Span::ZERO };
        if cost == 0 {
            return self.status(current).unchanged(admitted);
        }
        let until = current.now.plus(hold).min(current.end);
        let add = Some(Reservation { until, token, cost });
        self.set(current, admitted, Mark::Held { token, until }, QuotaChange { add, ..current.unchanged() })
    }

    fn settle(&self, current: &Current<'_>, token: Token, actual: u64) -> Step<QuotaChange> {
        if current.find(token).is_none() {
            return self.status(current).decline(Decline::NotHeld);
        }
        if actual > EXACT_MAX - current.used {
            return self.status(current).decline(Decline::Overflow);
        }
        let change = QuotaChange { used: current.used + actual, remove: token, ..current.unchanged() };
        self.set(current, Verdict::Done { amount: actual }, Mark::Window { start: current.start }, change)
    }

    fn cancel(&self, current: &Current<'_>, token: Token) -> Step<QuotaChange> {
        let Some(held) = current.find(token) else {
            return self.status(current).decline(Decline::NotHeld);
        };
        let change = QuotaChange { remove: token, ..current.unchanged() };
        self.set(current, Verdict::Done { amount: held.cost }, Mark::None, change)
    }

    /// Returns its numbers at `now`. Periods that do not cover `now` leave nothing.
    fn status_at(&self, state: Option<&QuotaState>, now: Time) -> LimitStatus {
        match self.current(state, now) {
            Ok(current) => self.status(&current),
            Err(at) => LimitStatus { limit: self.allowance, remaining: 0, reset_at: at },
        }
    }

    /// Takes units out of the period of the charge.
    fn refund(&self, state: Option<&QuotaState>, now: Time, mark: Mark, amount: u64) -> Step<QuotaChange> {
        let held = match self.period_of_charge(state, now, mark) {
            Ok(held) => held,
            Err(why) => return self.status_at(state, now).decline(why),
        };
        let given = amount.min(held.used);
        let next = QuotaState { used: held.used - given, ..held.clone() };
        let change = QuotaChange {
            start: next.start,
            end: next.end,
            now: next.seen,
            used: next.used,
            fresh: false,
            remove: Token::NONE,
            add: None,
        };
        self.status_at(Some(&next), now).amend(Verdict::Done { amount: given }, change)
    }

    /// Returns the state if the period of the charge is still the one in it and still counts. The numbers that charged
    /// know that period even if their periods no longer cover `now`.
    fn period_of_charge<'s>(
        &self,
        state: Option<&'s QuotaState>,
        now: Time,
        mark: Mark,
    ) -> Result<&'s QuotaState, Decline> {
        let (Some(state), Mark::Window { start }) = (state, mark) else { return Err(Decline::NotHeld) };
        let end = match self.period {
            QuotaPeriod::Rolling(length) => Some(start.plus(length)),
            QuotaPeriod::Calendar(periods) => {
                periods.containing(start).filter(|(first, _)| *first == start).map(|(_, end)| end)
            }
        };
        let end = end.filter(|_| state.start == start).ok_or(Decline::NotHeld)?;
        if state.end != end {
            return Err(Decline::WindowChanged);
        }
        let counts = state.used > 0 && state.seen.max(now) < end;
        if counts { Ok(state) } else { Err(Decline::NotHeld) }
    }

    fn set(
        &self,
        current: &Current<'_>,
        verdict: Verdict,
        mark: Mark,
        change: QuotaChange,
    ) -> Step<QuotaChange> {
        let removed = current.find(change.remove).map_or(0, |held| held.cost);
        let added = change.add.map_or(0, |held| held.cost);
        let taken = change.used.saturating_add(current.reserved() + added - removed);
        let remaining = self.allowance.saturating_sub(taken);
        LimitStatus { limit: self.allowance, remaining, reset_at: change.end }
            .write(verdict, mark, change, change.end)
    }
}

/// The period in force, and the units that count.
struct Current<'s> {
    /// Effective instant.
    now: Time,
    start: Time,
    end: Time,
    used: u64,
    held: &'s [Reservation],
    /// When `used` stops counting.
    free_at: Time,
    fresh: bool,
}

impl Current<'_> {
    fn reserved(&self) -> u64 {
        self.held.iter().map(|held| held.cost).sum()
    }

    fn find(&self, token: Token) -> Option<&Reservation> {
        self.held.iter().find(|held| held.token == token)
    }

    /// Returns a change that keeps what is used and reserved.
    fn unchanged(&self) -> QuotaChange {
        QuotaChange {
            start: self.start,
            end: self.end,
            now: self.now,
            used: self.used,
            fresh: self.fresh,
            remove: Token::NONE,
            add: None,
        }
    }
}

impl Machine for Quota {
    type State = QuotaState;
    type Change = QuotaChange;

    fn capacity(&self) -> u64 {
        self.ceiling()
    }

    fn decide(&self, state: Option<&QuotaState>, now: Time, operation: &Operation) -> Step<QuotaChange> {
        if let Operation::Refund { mark, cost, amount } = *operation {
            return self.refund(state, now, mark, amount.min(cost));
        }
        let current = match self.current(state, now) {
            Ok(current) => current,
            Err(at) => return self.status_at(state, now).decline(Decline::Recompute { at }),
        };
        match *operation {
            Operation::Charge { cost, .. } => self.charge(&current, cost),
            Operation::Peek { cost } => self.charge(&current, cost).without_write(),
            Operation::Reserve { cost, token, hold } => self.reserve(&current, cost, token, hold),
            Operation::Settle { token, actual } => self.settle(&current, token, actual),
            Operation::Cancel { token } => self.cancel(&current, token),
            _ => self.status(&current).decline(Decline::NotSupported),
        }
    }

    fn commit(slot: &mut Option<QuotaState>, change: QuotaChange) {
        let state = slot.get_or_insert_default();
        if change.fresh {
            state.reservations.clear();
        }
        (state.start, state.end, state.seen, state.used) =
            (change.start, change.end, change.now, change.used);
        state.reservations.retain(|held| held.until > change.now && held.token != change.remove);
        if let Some(held) = change.add {
            let index = state.reservations.partition_point(|other| other.until <= held.until);
            state.reservations.insert(index, held);
        }
    }
}
