//! Quota: an allowance per calendar period, or per period that starts with the first use, with reservations.
//!
//! - Guarantee: no period admits more than `allowance + grace` units. A settlement may exceed what was reserved, and
//!   records are not admitted: both may exceed the allowance and the grace.
//! - State: start and end of the newest period seen and the newest effective instant of a write, all in microseconds,
//!   units used, the account's generation, and the units reserved, as sums by end (`hold_sums.rs`). Each reservation has a
//!   separate record with its generation, end and units (`plan/hold.rs`).
//! - Admits cost c iff `used + reserved + c <= allowance + grace`.
//! - A reservation ends at most 1/32 of its length later than asked, and not after the period.
//! - Retry at: when enough reservations will have expired, or at the end of the period, whichever is earlier.
//! - Key may expire at: the end of the period. A reservation's record: [`REMEMBERED`] after the end of the reservation.
//! - Refund: only in the period of the charge. A reservation is settled or cancelled instead.
//! - Late settlement: as long as the record exists, the units are booked once, in the period in force. A repeat gets the
//!   same answer.
//! - Record: adds to the units used, as long as used and reserved units are at most 2^53 - 1. The overdraft counts from the allowance, without grace.
//! - Record in a period: declined if another period is in force. A rolling period that has not begun begins where the
//!   record says, if it is not over.
//! - Credit: subtracts from the units used in the period in force, but not below zero. Reservations stay.
//! - Extend: the units of the reservation move to its new end, the later one of its old end and a new hold's end.
//! - Largest intermediate: `used + reserved + cost`, below 2^54, because used and reserved units are capped together.

use crate::algorithm::hold_sums::{self, HoldSums, Pair};
use crate::algorithm::machine::{LimitStatus, Machine, Step};
use crate::limit::error::{LimitError, positive, positive_span};
use crate::plan::answer::{Decline, Retry, Verdict};
use crate::plan::hold::{Generation, Hold, HoldChange, HoldLookup, HoldStatus, HoldWrite, REMEMBERED};
use crate::plan::operation::{Mark, Operation, Token};
use crate::time::calendar::Periods;
use crate::time::{EXACT_MAX, Span, Time};

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
    /// Distinguishes this state from one that was reset or evicted, and from another period.
    pub generation: Generation,
    /// Units reserved, by end.
    pub sums: HoldSums,
}

/// What a decision asks to write: the new state, and the change to the reservation's record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QuotaChange {
    /// The new state.
    pub state: QuotaState,
    /// The change to the reservation's record, if the operation has one.
    pub hold: Option<HoldChange>,
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

    /// Returns the quota with corrections and grants of the period. Its allowance may be 0.
    pub(crate) fn with_extra(&self, extra: i64) -> Quota {
        let allowance = self.allowance.saturating_add_signed(extra).min(EXACT_MAX - self.grace);
        Quota { allowance, ..*self }
    }

    /// Returns the end of a rolling period that begins now; of calendar periods, that of the one at `now`.
    pub(crate) fn end_of_period(&self, now: Time) -> Time {
        match self.period {
            QuotaPeriod::Rolling(length) => now.plus(length),
            QuotaPeriod::Calendar(periods) => periods.containing(now).map_or(now, |(_, end)| end),
        }
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
                let pairs = hold_sums::live(&state.sums, now);
                Current { now, start, end, used: state.used, pairs, generation: state.generation, free_at }
            }
            None => {
                let free_at = if rolling { now } else { end };
                Current { now, start, end, used: 0, pairs: &[], generation: Generation::NONE, free_at }
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
        let excess = current.used + current.reserved() + needed - self.ceiling();
        let ended = hold_sums::ends_by(current.pairs, excess);
        ended.map_or(current.free_at, |end| end.min(current.free_at))
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
        let state = QuotaState { used: current.used + cost, ..current.state() };
        self.set(state, admitted, Mark::Window { start: current.start }, None)
    }

    fn reserve(
        &self,
        current: &Current<'_>,
        hold: HoldLookup<'_>,
        cost: u64,
        token: Token,
        length: Span,
    ) -> Step<QuotaChange> {
        let needed = cost.max(1);
        if current.find(hold).is_some() {
            return self.status(current).decline(Decline::TokenInUse);
        }
        if !self.fits(current, needed) {
            return self.refuse(current, needed);
        }
        let admitted = Verdict::Admitted { delay: Span::ZERO };
        if cost == 0 {
            return self.status(current).unchanged(admitted);
        }
        if hold == HoldLookup::NoRoom {
            return self.status(current).decline(Decline::TooManyReservations);
        }
        let end = current.end_of_hold(length);
        let mut state = current.state();
        if state.generation == Generation::NONE {
            state.generation = Generation::new(current.now, token);
        }
        // A reservation that ends at once counts in this answer, but not in the state.
        let ends_at_once = if end > current.now {
            state.sums.add(end, cost);
            0
        } else {
            cost
        };
        let record = Hold { generation: state.generation, end, units: cost, status: HoldStatus::Open };
        let mut step = self.set(state, admitted, Mark::Held { token, until: end }, Some((token, record)));
        step.answer.remaining = step.answer.remaining.saturating_sub(ends_at_once);
        step
    }

    /// Raises a reservation that is held. If it is refused, the reservation stays as it is.
    fn extend(
        &self,
        current: &Current<'_>,
        hold: HoldLookup<'_>,
        (token, more): (Token, u64),
        length: Span,
    ) -> Step<QuotaChange> {
        let needed = more.max(1);
        let Some(hold) = current.find(hold) else {
            return self.status(current).decline(Decline::NotHeld);
        };
        if !self.fits(current, needed) {
            return self.refuse(current, needed);
        }
        let admitted = Verdict::Admitted { delay: Span::ZERO };
        if more == 0 {
            return self.status(current).unchanged(admitted);
        }
        let end = current.end_of_hold(length).max(hold.end);
        let mut state = current.state();
        let moved = state.sums.take(hold.end, hold.units);
        state.sums.add(end, moved + more);
        let record = Hold { end, units: (hold.units + more).min(EXACT_MAX), ..*hold };
        self.set(state, admitted, Mark::Held { token, until: end }, Some((token, record)))
    }

    /// Gives back what an extension added. The reservation keeps its end.
    fn shorten(
        &self,
        current: &Current<'_>,
        hold: HoldLookup<'_>,
        token: Token,
        amount: u64,
    ) -> Step<QuotaChange> {
        let Some(hold) = current.find(hold).filter(|hold| hold.units > 0) else {
            return self.status(current).decline(Decline::NotHeld);
        };
        let amount = amount.min(hold.units);
        let mut state = current.state();
        state.sums.take(hold.end, amount);
        let record = Hold { units: hold.units - amount, ..*hold };
        self.set(state, Verdict::Done { amount }, Mark::None, Some((token, record)))
    }

    /// Returns the period in force if it starts at `start`. A rolling period that has not begun may begin in the past.
    fn starting_at<'s>(&self, current: &Current<'s>, start: Time) -> Option<Current<'s>> {
        if current.start == start {
            return Some(*current);
        }
        let QuotaPeriod::Rolling(length) = self.period else { return None };
        let (end, has_begun) = (start.plus(length), current.free_at > current.now);
        let is_current = !has_begun && start <= current.now && current.now < end;
        is_current.then_some(Current { start, end, ..*current })
    }

    fn record(&self, current: &Current<'_>, now: Time, cost: u64) -> Step<QuotaChange> {
        let amount = cost.min(EXACT_MAX.saturating_sub(current.used + current.reserved()));
        let free_at = if amount == 0 { current.free_at } else { current.end };
        let after = Current { used: current.used + amount, free_at, ..*current };
        let recorded = Verdict::Recorded {
            amount,
            overdraft: (after.used + after.reserved()).saturating_sub(self.allowance).min(EXACT_MAX),
            free_at: if self.fits(&after, 1) { now } else { self.retry(&after, 1) },
        };
        if amount == 0 {
            return self.status(&after).unchanged(recorded);
        }
        self.set(after.state(), recorded, Mark::Window { start: current.start }, None)
    }

    fn credit(&self, state: Option<&QuotaState>, current: &Current<'_>, cost: u64) -> Step<QuotaChange> {
        let amount = cost.min(current.used);
        let status = self.status(&Current { used: current.used - amount, ..*current });
        match state {
            Some(state) if amount > 0 => {
                let state = QuotaState { used: state.used - amount, ..state.clone() };
                status.amend(Verdict::Done { amount }, QuotaChange { state, hold: None })
            }
            _ => status.unchanged(Verdict::Done { amount }),
        }
    }

    fn settle(
        &self,
        current: &Current<'_>,
        hold: HoldLookup<'_>,
        token: Token,
        actual: u64,
    ) -> Step<QuotaChange> {
        let status = self.status(current);
        let remembered = hold.record().filter(|hold| current.now < hold.end.plus(REMEMBERED));
        let Some(hold) = remembered else { return status.decline(Decline::NotHeld) };
        let is_late = hold.end <= current.now;
        match hold.status {
            HoldStatus::Settled => return status.unchanged(Verdict::Done { amount: hold.units }),
            HoldStatus::SettledLate => return status.unchanged(Verdict::BookedLate { amount: hold.units }),
            HoldStatus::Open if is_late || hold.is_held(current.now, current.generation) => (),
            HoldStatus::Open | HoldStatus::Cancelled => return status.decline(Decline::NotHeld),
        }
        let mut state = current.state();
        let (verdict, status_after) = if is_late {
            (Verdict::BookedLate { amount: actual }, HoldStatus::SettledLate)
        } else {
            state.sums.take(hold.end, hold.units);
            (Verdict::Done { amount: actual }, HoldStatus::Settled)
        };
        let room = EXACT_MAX.saturating_sub(state.used + hold_sums::total(&state.sums.pairs));
        if actual > room {
            return status.decline(Decline::Overflow);
        }
        state.used += actual;
        let record = Hold { units: actual, status: status_after, ..*hold };
        self.set(state, verdict, Mark::Window { start: current.start }, Some((token, record)))
    }

    fn cancel(&self, current: &Current<'_>, hold: HoldLookup<'_>, token: Token) -> Step<QuotaChange> {
        let Some(hold) = current.find(hold) else {
            return self.status(current).decline(Decline::NotHeld);
        };
        let mut state = current.state();
        state.sums.take(hold.end, hold.units);
        let record = Hold { status: HoldStatus::Cancelled, ..*hold };
        self.set(state, Verdict::Done { amount: hold.units }, Mark::None, Some((token, record)))
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
        let status = self.status_at(Some(&next), now);
        status.amend(Verdict::Done { amount: given }, QuotaChange { state: next, hold: None })
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
        state: QuotaState,
        verdict: Verdict,
        mark: Mark,
        record: Option<(Token, Hold)>,
    ) -> Step<QuotaChange> {
        let taken = state.used.saturating_add(hold_sums::total(&state.sums.pairs));
        let (remaining, reset_at) = (self.allowance.saturating_sub(taken), state.end);
        let hold = record.map(|(token, hold)| {
            let dies_at = hold.end.plus(REMEMBERED);
            HoldChange { token, record: Some(HoldWrite { hold, dies_at }) }
        });
        LimitStatus { limit: self.allowance, remaining, reset_at }.write(
            verdict,
            mark,
            QuotaChange { state, hold },
            reset_at,
        )
    }
}

/// The period in force, and the units that count.
#[derive(Clone, Copy)]
struct Current<'s> {
    /// Effective instant.
    now: Time,
    start: Time,
    end: Time,
    used: u64,
    pairs: &'s [Pair],
    /// None in a new period.
    generation: Generation,
    /// When `used` stops counting.
    free_at: Time,
}

impl Current<'_> {
    fn reserved(&self) -> u64 {
        hold_sums::total(self.pairs)
    }

    /// Returns the reservation if its units are held.
    fn find<'h>(&self, hold: HoldLookup<'h>) -> Option<&'h Hold> {
        hold.record().filter(|hold| hold.is_held(self.now, self.generation))
    }

    /// Returns the end of a hold of this length. No hold outlives the period.
    fn end_of_hold(&self, length: Span) -> Time {
        hold_sums::end_of(self.now, length).min(self.end)
    }

    /// Returns a state that keeps what is used and reserved.
    fn state(&self) -> QuotaState {
        QuotaState {
            start: self.start,
            end: self.end,
            seen: self.now,
            used: self.used,
            generation: self.generation,
            sums: HoldSums::of(self.pairs),
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
        self.decide_hold(state, HoldLookup::None, now, operation)
    }

    fn decide_hold(
        &self,
        state: Option<&QuotaState>,
        hold: HoldLookup<'_>,
        now: Time,
        operation: &Operation,
    ) -> Step<QuotaChange> {
        if let Operation::Refund { mark, cost, amount } = *operation
            && !matches!(mark, Mark::Held { .. })
        {
            return self.refund(state, now, mark, amount.min(cost));
        }
        let current = match self.current(state, now) {
            Ok(current) => current,
            Err(at) => return self.status_at(state, now).decline(Decline::Recompute { at }),
        };
        match *operation {
            Operation::Charge { cost, .. } => self.charge(&current, cost),
            Operation::Peek { cost } => self.charge(&current, cost).without_write(),
            Operation::Reserve { cost, token, hold: length } => {
                self.reserve(&current, hold, cost, token, length)
            }
            Operation::Extend { token, more, hold: length } => {
                self.extend(&current, hold, (token, more), length)
            }
            Operation::Refund { mark: Mark::Held { token, .. }, cost, amount } => {
                self.shorten(&current, hold, token, amount.min(cost))
            }
            Operation::Record { cost } => self.record(&current, now, cost),
            Operation::RecordIn { cost, start } => match self.starting_at(&current, start) {
                Some(current) => self.record(&current, now, cost),
                None => self.status(&current).decline(Decline::WindowChanged),
            },
            Operation::Credit { cost } => self.credit(state, &current, cost),
            Operation::Usage => self
                .status(&current)
                .unchanged(Verdict::Usage { used: current.used, held: current.reserved() }),
            Operation::Settle { token, actual } => self.settle(&current, hold, token, actual),
            Operation::Cancel { token } => self.cancel(&current, hold, token),
            _ => self.status(&current).decline(Decline::NotSupported),
        }
    }

    fn commit(slot: &mut Option<QuotaState>, change: QuotaChange) {
        *slot = Some(change.state);
    }

    fn hold_change(change: &QuotaChange) -> Option<HoldChange> {
        change.hold
    }
}
