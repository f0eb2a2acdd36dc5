//! State of recorded rules: the account under a stamp, so that a gate that lost its state is not believed.
//!
//! - Only quotas and meters have it. The account inside is that of the algorithm, byte for byte.
//! - The stamp names the node that wrote the state and an epoch, which [`Restore`] draws. State without a stamp, or with that
//!   of another node, is not current: every operation on it is declined as [`Decline::Unverified`], and nothing is written.
//! - `revision` counts the changes of one epoch, so that the ledger knows which entries a look at the gate includes.
//! - `extra` is the sum of corrections and grants. It raises or lowers the allowance of its period, and a new period begins
//!   without it.
//! - A new period on a current stamp is a true zero.
//! - Largest intermediate: that of the algorithm. `|extra|` is below 2^52.

use crate::algorithm::hold_sums::{self, HoldSums, Pair};
use crate::algorithm::machine::{LimitStatus, Machine, Step, Write};
use crate::algorithm::meter::{Meter, MeterState};
use crate::algorithm::quota::{Quota, QuotaPeriod, QuotaState};
use crate::limit::Limit;
use crate::plan::answer::{Decline, Retry, Verdict};
use crate::plan::hold::{Generation, HoldChange, HoldLookup};
use crate::plan::operation::{Mark, Operation};
use crate::state::{Change, State};
use crate::time::{EXACT_MAX, Time};

/// Corrections and grants are below this, in either direction.
pub const EXTRA_END: i64 = 1 << 52;

/// The node of a store that does not know its own. No state of it is current.
pub const NODE_UNKNOWN: u64 = 0;

/// Who wrote the state, and what the ledger added to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stamp {
    /// A number of the node that wrote the state, from 1 to 2^53 - 1.
    pub node: u64,
    /// Drawn at random by the last restore.
    pub epoch: u32,
    /// Changes in this epoch.
    pub revision: u32,
    /// Corrections and grants of the period, in units.
    pub extra: i64,
    /// The number of the last correction or grant.
    pub extra_no: u64,
    /// Adjustments of this account.
    pub adjusted: u32,
}

/// An account under its stamp.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StampedState {
    /// The stamp.
    pub stamp: Stamp,
    /// The state of the algorithm; `None` if nothing was charged since the restore of a rolling period.
    pub account: Option<StampedAccount>,
}

/// The state of a recorded algorithm.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "each variant is the state of its algorithm")]
pub enum StampedAccount {
    Quota(QuotaState),
    Meter(MeterState),
}

/// What an operation asks to write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StampedChange {
    /// The new state.
    pub state: Box<StampedState>,
    /// The change to the record of the operation's token.
    pub hold: Option<HoldChange>,
}

/// Which state of an account an answer describes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Revision {
    /// The epoch.
    pub epoch: u32,
    /// Changes in this epoch, that of the answer included.
    pub revision: u32,
    /// Adjustments so far.
    pub adjusted: u32,
    /// Corrections and grants in force.
    pub extra: i64,
}

impl Revision {
    fn of(stamp: &Stamp, extra: i64) -> Revision {
        Revision { epoch: stamp.epoch, revision: stamp.revision, adjusted: stamp.adjusted, extra }
    }

    /// Returns epoch and revision as one number, which grows with each change of the epoch.
    pub const fn number(&self) -> i64 {
        ((self.epoch & 0x7fff_ffff) as i64) << 32 | self.revision as i64
    }
}

/// What the ledger knows of an account whose state in the gate is absent or foreign.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Restore {
    /// First instant of the period; zero for a meter, and for a rolling period without an account.
    pub start: Time,
    /// First instant after the period; zero like `start`.
    pub end: Time,
    /// Units used.
    pub used: u64,
    /// Units that reservations hold.
    pub held: u64,
    /// The end of the last of these reservations.
    pub held_until: Time,
    /// Corrections and grants.
    pub extra: i64,
    /// The number of the last of them.
    pub extra_no: u64,
    /// The new epoch.
    pub epoch: u32,
    /// Whether the ledger answered. If not, only what the gate has is kept.
    pub known: bool,
}

/// Corrections and grants of one account.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extra {
    /// Their sum.
    pub extra: i64,
    /// The number of the last one. A number that is not higher than the gate's changes nothing.
    pub number: u64,
    /// First instant of the period; ignored for a meter.
    pub start: Time,
}

/// A correction of the gate's count by the ledger.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Adjust {
    /// Units to subtract from the units used; negative to add.
    pub subtract: i64,
    /// The epoch of the look.
    pub epoch: u32,
    /// Adjustments at the look. Another adjustment since changes nothing.
    pub adjusted: u32,
    /// First instant of the period; ignored for a meter.
    pub start: Time,
}

/// A step, and the revision that its answer describes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StampedStep {
    /// The step.
    pub step: Step<Change>,
    /// The revision.
    pub revision: Revision,
}

/// Decides one operation of a recorded rule. `node` is the number of the node that holds the state.
pub fn decide(
    limit: &Limit,
    node: u64,
    state: Option<&State>,
    hold: HoldLookup<'_>,
    now: Time,
    operation: &Operation,
) -> StampedStep {
    match limit {
        Limit::Quota(quota) => Gate { limit, machine: quota, node, state, now }.decide(hold, operation),
        Limit::Meter(meter) => Gate { limit, machine: meter, node, state, now }.decide(hold, operation),
        _ => StampedStep {
            step: limit.decide_hold(state, hold, now, operation),
            revision: Revision::default(),
        },
    }
}

/// An algorithm that can be recorded.
trait Recordable: Machine<State: Clone> {
    fn account(state: &State) -> Option<&Self::State>;
    fn inside(account: &StampedAccount) -> Option<&Self::State>;
    fn wrap(state: Self::State) -> StampedAccount;
    fn with_extra(&self, extra: i64) -> Self;
    /// Whether the units of this state count at `now`.
    fn is_in_force(&self, state: &Self::State, now: Time) -> bool;
    /// Whether the state is of the period that begins at `start`.
    fn is_period(state: &Self::State, start: Time) -> bool;
    fn used(state: &Self::State) -> u64;
    /// Returns the state with these units used, as far as they fit.
    fn with_used(state: &Self::State, used: u64) -> Self::State;
    /// Returns the restored state, `None` if there is nothing to keep, and when it may be deleted.
    fn restored(
        &self,
        found: Option<&Self::State>,
        restore: &Restore,
        now: Time,
    ) -> (Option<Self::State>, Time);
    /// Returns the state after a change.
    fn changed(change: &Self::Change) -> Self::State;
    /// Returns its answer to `Usage`.
    fn usage(&self, state: Option<&Self::State>, hold: HoldLookup<'_>, now: Time) -> Step<Self::Change>;
}

impl Recordable for Quota {
    fn account(state: &State) -> Option<&QuotaState> {
        if let State::Quota(state) = state { Some(state) } else { None }
    }

    fn inside(account: &StampedAccount) -> Option<&QuotaState> {
        if let StampedAccount::Quota(state) = account { Some(state) } else { None }
    }

    fn wrap(state: QuotaState) -> StampedAccount {
        StampedAccount::Quota(state)
    }

    fn with_extra(&self, extra: i64) -> Quota {
        Quota::with_extra(self, extra)
    }

    fn is_in_force(&self, state: &QuotaState, now: Time) -> bool {
        let now = now.max(state.seen);
        match self.period() {
            QuotaPeriod::Calendar(_) => now < state.end,
            QuotaPeriod::Rolling(length) => now < state.start.plus(length),
        }
    }

    fn is_period(state: &QuotaState, start: Time) -> bool {
        state.start == start
    }

    fn used(state: &QuotaState) -> u64 {
        state.used
    }

    fn with_used(state: &QuotaState, used: u64) -> QuotaState {
        let room = EXACT_MAX.saturating_sub(hold_sums::total(&state.sums.pairs));
        QuotaState { used: used.min(room), ..state.clone() }
    }

    fn restored(
        &self,
        found: Option<&QuotaState>,
        restore: &Restore,
        now: Time,
    ) -> (Option<QuotaState>, Time) {
        let (start, end) = found.map_or((restore.start, restore.end), |found| (found.start, found.end));
        if end == Time::ZERO {
            return (None, self.end_of_period(now));
        }
        let used = restore.used.max(found.map_or(0, |found| found.used));
        let now = found.map_or(now, |found| now.max(found.seen));
        let held = restore.held.min(EXACT_MAX - used);
        let sums = match found {
            Some(found) if !restore.known => HoldSums::of(hold_sums::live(&found.sums, now)),
            _ if held > 0 && restore.held_until > now => {
                HoldSums::of(&[Pair { end: restore.held_until.min(end), units: held }])
            }
            _ => HoldSums::default(),
        };
        let used = used.min(EXACT_MAX - hold_sums::total(&sums.pairs));
        let generation = found.map_or(Generation::NONE, |found| found.generation);
        let dies_at = match self.period() {
            QuotaPeriod::Rolling(length) => start.plus(length),
            QuotaPeriod::Calendar(_) => end,
        };
        (Some(QuotaState { start, end, seen: now, used, generation, sums }), dies_at)
    }

    fn changed(change: &Self::Change) -> QuotaState {
        change.state.clone()
    }

    fn usage(&self, state: Option<&QuotaState>, hold: HoldLookup<'_>, now: Time) -> Step<Self::Change> {
        self.decide_hold(state, hold, now, &Operation::Usage)
    }
}

impl Recordable for Meter {
    fn account(state: &State) -> Option<&MeterState> {
        if let State::Meter(state) = state { Some(state) } else { None }
    }

    fn inside(account: &StampedAccount) -> Option<&MeterState> {
        if let StampedAccount::Meter(state) = account { Some(state) } else { None }
    }

    fn wrap(state: MeterState) -> StampedAccount {
        StampedAccount::Meter(state)
    }

    fn with_extra(&self, extra: i64) -> Meter {
        Meter::with_extra(self, extra)
    }

    fn is_in_force(&self, state: &MeterState, now: Time) -> bool {
        now.max(state.touched) < state.touched.plus(self.expiry())
    }

    fn is_period(_: &MeterState, _: Time) -> bool {
        true
    }

    fn used(state: &MeterState) -> u64 {
        state.value
    }

    fn with_used(state: &MeterState, used: u64) -> MeterState {
        MeterState { value: used.min(EXACT_MAX), ..*state }
    }

    fn restored(
        &self,
        found: Option<&MeterState>,
        restore: &Restore,
        now: Time,
    ) -> (Option<MeterState>, Time) {
        let value = restore.used.max(found.map_or(0, |found| found.value));
        let touched = found.map_or(now, |found| now.max(found.touched));
        (Some(MeterState { value, touched }), touched.plus(self.expiry()))
    }

    fn changed(change: &MeterState) -> MeterState {
        *change
    }

    fn usage(&self, state: Option<&MeterState>, _: HoldLookup<'_>, now: Time) -> Step<MeterState> {
        // A meter holds nothing, so a record of no units says all.
        let mut step = self.decide(state, now, &Operation::Record { cost: 0 });
        if let Verdict::Recorded { overdraft, .. } = step.answer.verdict {
            let used = step.answer.limit.saturating_sub(step.answer.remaining).saturating_add(overdraft);
            step.answer.verdict = Verdict::Usage { used, held: 0 };
        }
        step
    }
}

/// One operation on one account.
struct Gate<'a, M> {
    limit: &'a Limit,
    machine: &'a M,
    node: u64,
    state: Option<&'a State>,
    now: Time,
}

impl<M: Recordable> Gate<'_, M> {
    fn decide(&self, hold: HoldLookup<'_>, operation: &Operation) -> StampedStep {
        if let Operation::Reset { .. } = operation {
            return unstamped(self.limit.decide(None, self.now, operation));
        }
        let current = self.current();
        let exceeds = operation.cost().is_some_and(|cost| cost > self.limit.capacity());
        let Some((stamp, account)) = current else {
            return unstamped(match operation {
                _ if exceeds => self.status().unchanged(Verdict::Refused(Retry::Never)),
                Operation::Restore(restore) => return self.restore(restore),
                _ => self.unverified(operation),
            });
        };
        let in_force = account.filter(|account| self.machine.is_in_force(account, self.now));
        let extra =
            if account.is_some() && in_force.is_none() && self.has_periods() { 0 } else { stamp.extra };
        match operation {
            // The state is believed, so there is nothing to restore.
            Operation::Restore(_) => self.done(0, Revision::of(stamp, extra)),
            Operation::Extra(more) => self.extra(stamp, extra, account, in_force, more),
            Operation::Adjust(adjust) => self.adjust(stamp, extra, in_force, adjust),
            _ => {
                let machine = self.machine.with_extra(extra);
                let step = match operation {
                    _ if exceeds => {
                        machine.decide(account, self.now, &Operation::Peek { cost: 0 }).refused_for_ever()
                    }
                    Operation::Usage => machine.usage(account, hold, self.now),
                    _ => machine.decide_hold(account, hold, self.now, operation),
                };
                self.stamp(stamp, extra, step)
            }
        }
    }

    /// Returns the stamp and the account, if they are of this node and algorithm.
    fn current(&self) -> Option<(&Stamp, Option<&M::State>)> {
        let Some(State::Stamped(state)) = self.state else { return None };
        let StampedState { stamp, account } = &**state;
        let is_own = self.node != NODE_UNKNOWN && stamp.node == self.node && stamp.revision < u32::MAX;
        let account = account.as_ref().map(M::inside);
        match account {
            None => is_own.then_some((stamp, None)),
            Some(account) => account.filter(|_| is_own).map(|account| (stamp, Some(account))),
        }
    }

    fn has_periods(&self) -> bool {
        matches!(self.limit, Limit::Quota(_))
    }

    /// Returns the numbers of an account without state.
    fn status(&self) -> LimitStatus {
        let answer = self.machine.decide(None, self.now, &Operation::Peek { cost: 0 }).answer;
        LimitStatus { limit: answer.limit, remaining: answer.remaining, reset_at: answer.reset_at }
    }

    /// Returns the instant that the calendar periods do not cover, if they do not cover `now`.
    fn uncovered(&self) -> Option<Decline> {
        match self.machine.decide(None, self.now, &Operation::Peek { cost: 0 }).answer.verdict {
            Verdict::Declined(why @ Decline::Recompute { .. }) => Some(why),
            _ => None,
        }
    }

    fn unverified(&self, operation: &Operation) -> Step<Change> {
        let is_refund =
            matches!(operation, Operation::Refund { mark, .. } if !matches!(mark, Mark::Held { .. }));
        let why = match self.uncovered() {
            // The periods of the receipt have passed, so nothing is held for it.
            Some(_) if is_refund => Decline::NotHeld,
            Some(why) => why,
            None => Decline::Unverified,
        };
        self.status().decline(why)
    }

    fn done(&self, amount: u64, revision: Revision) -> StampedStep {
        self.step(self.status().unchanged(Verdict::Done { amount }), revision)
    }

    /// Returns a step whose limit includes the corrections in force.
    fn step(&self, mut step: Step<Change>, revision: Revision) -> StampedStep {
        if revision.extra != 0 {
            step.answer.limit = self.limit.with_extra(revision.extra).reported_limit();
        }
        StampedStep { step, revision }
    }

    /// Writes what the ledger knows, and keeps what the gate has of the same period. Returns the units that the gate counted
    /// before the rule was recorded.
    fn restore(&self, restore: &Restore) -> StampedStep {
        if self.node == NODE_UNKNOWN {
            return unstamped(self.status().decline(Decline::Unverified));
        }
        if let Some(why) = self.uncovered() {
            return unstamped(self.status().decline(why));
        }
        if restore.end > Time::ZERO && restore.end <= self.now {
            // Of an older period.
            return self.done(0, Revision::default());
        }
        let (old, found) = match self.state {
            Some(State::Stamped(state)) => (Some(state.stamp), state.account.as_ref().and_then(M::inside)),
            state => (None, state.and_then(M::account)),
        };
        let found = found.filter(|found| self.machine.is_in_force(found, self.now));
        let kept = old.filter(|old| found.is_some() && (!restore.known || old.extra_no > restore.extra_no));
        let (extra, extra_no) =
            kept.map_or((restore.extra, restore.extra_no), |old| (old.extra, old.extra_no));
        let stamp = Stamp {
            node: self.node,
            epoch: restore.epoch,
            revision: 0,
            extra,
            extra_no,
            adjusted: old.map_or(0, |old| old.adjusted),
        };
        let opening = match (old, found) {
            (None, Some(found)) => M::used(found).saturating_sub(restore.used),
            _ => 0,
        };
        let (account, dies_at) = self.machine.restored(found, restore, self.now);
        let state = Box::new(StampedState { stamp, account: account.map(M::wrap) });
        let change = Change::Stamped(StampedChange { state, hold: None });
        let done = Verdict::Done { amount: opening };
        self.step(self.status().write(done, Mark::None, change, dies_at), Revision::of(&stamp, extra))
    }

    fn extra(
        &self,
        stamp: &Stamp,
        extra: i64,
        account: Option<&M::State>,
        in_force: Option<&M::State>,
        more: &Extra,
    ) -> StampedStep {
        let counts = !self.has_periods() || in_force.is_some_and(|state| M::is_period(state, more.start));
        if !counts || more.number <= stamp.extra_no {
            return self.done(0, Revision::of(stamp, extra));
        }
        let stamp =
            Stamp { extra: more.extra, extra_no: more.number, revision: stamp.revision + 1, ..*stamp };
        self.amend(stamp, account.cloned(), 1)
    }

    fn adjust(&self, stamp: &Stamp, extra: i64, in_force: Option<&M::State>, adjust: &Adjust) -> StampedStep {
        let state = in_force.filter(|state| M::is_period(state, adjust.start));
        let same = stamp.epoch == adjust.epoch && stamp.adjusted == adjust.adjusted;
        let Some(state) = state.filter(|_| same) else { return self.done(0, Revision::of(stamp, extra)) };
        let used = M::used(state);
        let wanted = match u64::try_from(adjust.subtract) {
            Ok(less) => used.saturating_sub(less),
            Err(_) => used.saturating_add(adjust.subtract.unsigned_abs()),
        };
        let next = M::with_used(state, wanted);
        let amount = M::used(&next).abs_diff(used);
        let stamp =
            Stamp { extra, revision: stamp.revision + 1, adjusted: stamp.adjusted.wrapping_add(1), ..*stamp };
        self.amend(stamp, Some(next), amount)
    }

    /// Writes a state that keeps its expiry.
    fn amend(&self, stamp: Stamp, account: Option<M::State>, amount: u64) -> StampedStep {
        let state = Box::new(StampedState { stamp, account: account.map(M::wrap) });
        let change = Change::Stamped(StampedChange { state, hold: None });
        self.step(self.status().amend(Verdict::Done { amount }, change), Revision::of(&stamp, stamp.extra))
    }

    /// Puts the step of the algorithm under the stamp, with the next revision if it writes.
    fn stamp(&self, stamp: &Stamp, extra: i64, step: Step<M::Change>) -> StampedStep {
        let Step { answer, write } = step;
        let revision = stamp.revision + u32::from(write.is_some());
        let stamp = Stamp { revision, extra, ..*stamp };
        let write = write.map(|Write { change, dies_at }| {
            let hold = M::hold_change(&change);
            let state = StampedState { stamp, account: Some(M::wrap(M::changed(&change))) };
            Write { change: Change::Stamped(StampedChange { state: Box::new(state), hold }), dies_at }
        });
        StampedStep { step: Step { answer, write }, revision: Revision::of(&stamp, extra) }
    }
}

fn unstamped(step: Step<Change>) -> StampedStep {
    StampedStep { step, revision: Revision::default() }
}

impl<C> Step<C> {
    /// Returns the refusal of a cost that could never fit, with the numbers of this step.
    fn refused_for_ever(mut self) -> Step<C> {
        self.answer.verdict = Verdict::Refused(Retry::Never);
        self.answer.mark = Mark::None;
        self.write = None;
        self
    }
}
