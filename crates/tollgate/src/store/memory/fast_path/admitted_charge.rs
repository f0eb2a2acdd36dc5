//! An admitted charge in two steps: the new state, computed under the lock, and the answer, computed after it.
//!
//! Under the lock a charge takes a comparison and an addition; the divisions are in the answer. Only an interpolating
//! sliding window divides under the lock. Algorithms without this short path are decided by `Limit::decide`.
//!
//! Gain: without it, one key costs 1.8 times the CPU, and one under a sliding window 3.3 times (docs/decisions/0004, rows
//! "admitted charge" and "sliding window in place").

use tollgate_core::algorithm::bucket::{Bucket, BucketState};
use tollgate_core::algorithm::fixed_window::{FixedWindow, FixedWindowState};
use tollgate_core::algorithm::meter::{Meter, MeterState};
use tollgate_core::algorithm::sliding_window::{NewestBucketCharge, SlidingWindow};
use tollgate_core::{Answer, Limit, Time};

use crate::store::memory::shard::slot::{PackedState, bucket, meter, window};

/// An admitted charge: the limit, and the state that the charge leaves behind.
#[derive(Clone, Copy)]
pub(crate) enum AdmittedCharge<'l> {
    Packed(PackedCharge<'l>),
    /// Adds to the newest bucket of a state on the heap, in place.
    SlidingWindow(&'l SlidingWindow, NewestBucketCharge),
}

/// An admitted charge to state that is packed into its slot.
#[derive(Clone, Copy)]
pub(crate) enum PackedCharge<'l> {
    Bucket(&'l Bucket, BucketState),
    FixedWindow(&'l FixedWindow, FixedWindowState),
    Meter(&'l Meter, MeterState),
}

/// Charges `cost` to packed state that the same limit wrote. Returns `None` if the charge is not admitted, or if the limit
/// has no short path.
#[inline(always)]
pub(crate) fn charge_packed(
    limit: &Limit,
    packed: PackedState,
    now: Time,
    cost: u64,
) -> Option<PackedCharge<'_>> {
    let is_possible = |capacity: u64| (1..=capacity).contains(&cost);
    match limit {
        Limit::Bucket(limit) if is_possible(limit.capacity()) => {
            let state = limit.try_charge(Some(&bucket(limit.rate().1, packed)), now, cost)?;
            Some(PackedCharge::Bucket(limit, state))
        }
        Limit::FixedWindow(limit) if is_possible(limit.limit()) => {
            let state = limit.try_charge(Some(&window(limit.window(), packed)), now, cost)?;
            Some(PackedCharge::FixedWindow(limit, state))
        }
        Limit::Meter(limit) if is_possible(limit.limit()) => {
            Some(PackedCharge::Meter(limit, limit.try_charge(Some(&meter(packed)), now, cost)?))
        }
        _ => None,
    }
}

impl PackedCharge<'_> {
    /// The state to write under the lock.
    // Always inlined: the caller knows the kind of charge, and a call would pass it through memory.
    #[inline(always)]
    pub(crate) const fn new_state(&self) -> PackedState {
        match self {
            PackedCharge::Bucket(_, state) => [state.time.us(), state.debt],
            PackedCharge::FixedWindow(_, state) => [state.start.us(), state.used],
            PackedCharge::Meter(_, state) => [state.touched.us(), state.value],
        }
    }
}

impl AdmittedCharge<'_> {
    /// Computes the answer. The caller has released the lock.
    // Always inlined, so that the compiler drops the numbers that the caller does not read.
    #[inline(always)]
    pub(crate) fn answer(&self, cost: u64) -> Answer {
        match self {
            AdmittedCharge::Packed(PackedCharge::Bucket(limit, state)) => limit.admission_answer(state, cost),
            AdmittedCharge::Packed(PackedCharge::FixedWindow(limit, state)) => limit.admission_answer(state),
            AdmittedCharge::Packed(PackedCharge::Meter(limit, state)) => limit.admission_answer(state),
            AdmittedCharge::SlidingWindow(limit, newest) => limit.admission_answer(newest),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tollgate_core::algorithm::machine::Machine;
    use tollgate_core::algorithm::sliding_window::{Counting, SlidingWindowState};
    use tollgate_core::{Change, Operation, Span, State};

    use super::*;
    use crate::store::memory::shard::slot::pack;

    fn limit() -> impl Strategy<Value = Limit> {
        let tokens = |(rate, s, capacity)| Bucket::tokens(rate, Span::from_secs(s), capacity);
        let queue = |(rate, s, length)| Bucket::queue(rate, Span::from_secs(s), length);
        prop_oneof![
            (1..9_u64, 1..9_u64, 1..9_u64).prop_map(move |n| Limit::Bucket(tokens(n).expect("in range"))),
            (1..9_u64, 1..9_u64, 1..9_u64).prop_map(move |n| Limit::Bucket(queue(n).expect("in range"))),
            (1..9_u64, 1..9_u64).prop_map(|(limit, s)| {
                Limit::FixedWindow(FixedWindow::new(limit, Span::from_secs(s)).expect("in range"))
            }),
            (1..9_u64, 1..9_u64).prop_map(|(limit, s)| {
                Limit::Meter(Meter::new(Some(limit), Some(Span::from_secs(s))).expect("in range"))
            }),
        ]
    }

    fn pack_change(change: &Change) -> Option<PackedState> {
        let mut state = None;
        State::commit(&mut state, change.clone());
        state.as_ref().and_then(pack)
    }

    proptest! {
        #[test]
        fn a_packed_charge_equals_the_decision_of_the_algorithm(
            limit in limit(),
            charges in prop::collection::vec((0..3_000_000_u64, 0..4_u64), 1..40),
        ) {
            let mut state: Option<State> = None;
            for (us, cost) in charges {
                let (now, operation) = (Time::from_us(5_000_000 + us), Operation::charge(cost));
                let step = limit.decide(state.as_ref(), now, &operation);
                if let Some(packed) = state.as_ref().and_then(pack) {
                    let charge = charge_packed(&limit, packed, now, cost);
                    let written = step.write.as_ref().and_then(|write| pack_change(&write.change));
                    prop_assert_eq!(charge.map(|charge| charge.new_state()), written);
                    if let Some(charge) = charge {
                        prop_assert_eq!(AdmittedCharge::Packed(charge).answer(cost), step.answer);
                    }
                }
                if let Some(write) = step.write {
                    State::commit(&mut state, write.change);
                }
            }
        }
    }

    fn window() -> impl Strategy<Value = SlidingWindow> {
        let counting = prop_oneof![Just(Counting::Strict), Just(Counting::Interpolated)];
        // The large limit is interpolated in milliseconds.
        let limit = prop_oneof![4 => 1..9_u64, 1 => Just(1 << 40)];
        (limit, 1..3_u64, 1..4_u64, counting).prop_map(|(limit, s, buckets, counting)| {
            SlidingWindow::new(limit, Span::from_secs(s * buckets), buckets, counting).expect("in range")
        })
    }

    /// The time of the next charge, in microseconds.
    #[derive(Clone, Copy, Debug)]
    enum Next {
        /// After the last charge.
        Later(u64),
        /// Before the end of the newest bucket; 0 is its end.
        BeforeBucketEnd(u64),
        /// Before the last charge: the clock was set back.
        Earlier(u64),
    }

    fn next() -> impl Strategy<Value = Next> {
        prop_oneof![
            4 => (0..1_000_000_u64).prop_map(Next::Later),
            2 => (0..2_u64).prop_map(Next::BeforeBucketEnd),
            1 => (0..2_000_000_u64).prop_map(Next::Earlier),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1_000))]

        /// Two limits alternate, so that each finds state that the other wrote.
        #[test]
        fn a_charge_to_the_newest_bucket_equals_the_decision_of_the_algorithm(
            windows in [window(), window()],
            charges in prop::collection::vec((prop::bool::weighted(0.2), next(), 1..4_u64), 1..60),
        ) {
            let (mut state, mut us) = (None::<SlidingWindowState>, 5_000_000);
            for (other, next, cost) in charges {
                let limit = windows[usize::from(other)];
                let cost = cost.min(limit.limit());
                us = match (next, &state) {
                    (Next::BeforeBucketEnd(us), Some(state)) => state.newest.plus(state.bucket).us() - us,
                    (Next::Earlier(by), _) => us.saturating_sub(by),
                    (Next::Later(by) | Next::BeforeBucketEnd(by), _) => us + by,
                };
                let now = Time::from_us(us);
                let step = limit.decide(state.as_ref(), now, &Operation::charge(cost));
                let dies_at = step.write.as_ref().and_then(|write| write.dies_at);
                let written = step.write.map(|write| write.change);
                if let Some(state) = &state {
                    let same_shape = state.bucket.us() * limit.buckets() == limit.window().us()
                        && state.counts.len() as u64 == limit.buckets() + 1
                        && state.counts.iter().all(|&count| count <= limit.limit());
                    let in_newest = written.as_ref().is_some_and(|written| written.newest == state.newest);
                    let newest = limit.try_charge(state, now, cost);
                    prop_assert_eq!(newest.is_some(), same_shape && in_newest);
                    if let Some(newest) = newest {
                        let mut charged = state.clone();
                        newest.add_to(&mut charged);
                        prop_assert_eq!(limit.admission_answer(&newest), step.answer);
                        prop_assert_eq!(Some(&charged), written.as_ref());
                        prop_assert_eq!(Some(limit.dies_at(&newest)), dies_at);
                    }
                }
                state = written.or(state);
            }
        }
    }
}
