//! The short way of a charge, in two steps: what must be found out under the lock, and what can be told after it.

use tollgate_core::algorithm::bucket::{Bucket, BucketState};
use tollgate_core::algorithm::fixed_window::{FixedWindow, FixedWindowState};
use tollgate_core::algorithm::meter::{Meter, MeterState};
use tollgate_core::algorithm::sliding_window::{InNewest, SlidingWindow};
use tollgate_core::{Answer, Limit, Time};

use super::slot::{Values, bucket, meter, window};

/// What an admitted charge leaves behind.
#[derive(Clone, Copy)]
pub(super) enum Charged<'l> {
    InSlot(InSlot<'l>),
    /// On the heap.
    SlidingWindow(&'l SlidingWindow, InNewest),
}

/// The same where the state lies in its slot.
#[derive(Clone, Copy)]
pub(super) enum InSlot<'l> {
    Bucket(&'l Bucket, BucketState),
    FixedWindow(&'l FixedWindow, FixedWindowState),
    Meter(&'l Meter, MeterState),
}

/// Charges `cost` to state that lies in a slot; `None` if it is not admitted, or if this limit has no short way. `values`
/// are what the same limit wrote before.
#[inline(always)]
pub(super) fn charge(limit: &Limit, values: Values, now: Time, cost: u64) -> Option<InSlot<'_>> {
    let asks = |capacity: u64| (1..=capacity).contains(&cost);
    match limit {
        Limit::Bucket(limit) if asks(limit.capacity()) => {
            let left = limit.charged(Some(&bucket(limit.rate().1, values)), now, cost)?;
            Some(InSlot::Bucket(limit, left))
        }
        Limit::FixedWindow(limit) if asks(limit.limit()) => {
            let left = limit.charged(Some(&window(limit.window(), values)), now, cost)?;
            Some(InSlot::FixedWindow(limit, left))
        }
        Limit::Meter(limit) if asks(limit.limit()) => {
            Some(InSlot::Meter(limit, limit.charged(Some(&meter(values)), now, cost)?))
        }
        _ => None,
    }
}

impl InSlot<'_> {
    /// To be written under the lock.
    #[inline]
    pub(super) const fn values(&self) -> Values {
        match self {
            InSlot::Bucket(_, left) => [left.time.us(), left.debt],
            InSlot::FixedWindow(_, left) => [left.start.us(), left.used],
            InSlot::Meter(_, left) => [left.touched.us(), left.value],
        }
    }
}

impl Charged<'_> {
    /// To be told after it. Always inlined, so that who does not look at a number does not pay for it.
    #[inline(always)]
    pub(super) fn answer(&self, cost: u64) -> Answer {
        match self {
            Charged::InSlot(InSlot::Bucket(limit, left)) => limit.admitted(left, cost),
            Charged::InSlot(InSlot::FixedWindow(limit, left)) => limit.admitted(left),
            Charged::InSlot(InSlot::Meter(limit, left)) => limit.admitted(left),
            Charged::SlidingWindow(limit, left) => limit.admitted(left),
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
    use crate::store::memory::slot::pack;

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

    fn pack_change(change: &Change) -> Option<Values> {
        let mut state = None;
        State::commit(&mut state, change.clone());
        state.as_ref().and_then(pack)
    }

    proptest! {
        /// The two steps together are one decision of the algorithm.
        #[test]
        fn a_charge_in_two_steps_is_the_decision_of_the_algorithm(
            limit in limit(),
            charges in prop::collection::vec((0..3_000_000_u64, 0..4_u64), 1..40),
        ) {
            let mut state: Option<State> = None;
            for (us, cost) in charges {
                let (now, operation) = (Time::from_us(5_000_000 + us), Operation::charge(cost));
                let step = limit.decide(state.as_ref(), now, &operation);
                if let Some(values) = state.as_ref().and_then(pack) {
                    let charged = charge(&limit, values, now, cost);
                    let written = step.write.as_ref().and_then(|write| pack_change(&write.change));
                    prop_assert_eq!(charged.map(|charged| charged.values()), written);
                    if let Some(charged) = charged {
                        prop_assert_eq!(Charged::InSlot(charged).answer(cost), step.answer);
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
        // The large one is interpolated in milliseconds.
        let limit = prop_oneof![4 => 1..9_u64, 1 => Just(1 << 40)];
        (limit, 1..3_u64, 1..4_u64, counting).prop_map(|(limit, s, buckets, counting)| {
            SlidingWindow::new(limit, Span::from_secs(s * buckets), buckets, counting).expect("in range")
        })
    }

    /// When the next charge comes, in microseconds.
    #[derive(Clone, Copy, Debug)]
    enum Next {
        Later(u64),
        /// So much before the newest bucket is over, or just then.
        BeforeTheEnd(u64),
        /// A clock that is set back.
        Earlier(u64),
    }

    fn next() -> impl Strategy<Value = Next> {
        prop_oneof![
            4 => (0..1_000_000_u64).prop_map(Next::Later),
            2 => (0..2_u64).prop_map(Next::BeforeTheEnd),
            1 => (0..2_000_000_u64).prop_map(Next::Earlier),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1_000))]

        /// Two limits take turns, so that one finds what the other wrote.
        #[test]
        fn a_charge_to_the_newest_bucket_is_the_decision_of_the_algorithm(
            windows in [window(), window()],
            charges in prop::collection::vec((prop::bool::weighted(0.2), next(), 1..4_u64), 1..60),
        ) {
            let (mut state, mut us) = (None::<SlidingWindowState>, 5_000_000);
            for (other, next, cost) in charges {
                let limit = windows[usize::from(other)];
                let cost = cost.min(limit.limit());
                us = match (next, &state) {
                    (Next::BeforeTheEnd(us), Some(state)) => state.newest.plus(state.bucket).us() - us,
                    (Next::Earlier(by), _) => us.saturating_sub(by),
                    (Next::Later(by) | Next::BeforeTheEnd(by), _) => us + by,
                };
                let now = Time::from_us(us);
                let step = limit.decide(state.as_ref(), now, &Operation::charge(cost));
                let dies_at = step.write.as_ref().map(|write| write.dies_at);
                let written = step.write.map(|write| write.change);
                if let Some(state) = &state {
                    let alike = state.bucket.us() * limit.buckets() == limit.window().us()
                        && state.counts.len() as u64 == limit.buckets() + 1
                        && state.counts.iter().all(|&count| count <= limit.limit());
                    let in_newest = written.as_ref().is_some_and(|written| written.newest == state.newest);
                    let left = limit.charged(state, now, cost);
                    prop_assert_eq!(left.is_some(), alike && in_newest);
                    if let Some(left) = left {
                        let mut charged = state.clone();
                        left.add_to(&mut charged);
                        prop_assert_eq!(limit.admitted(&left), step.answer);
                        prop_assert_eq!(Some(&charged), written.as_ref());
                        prop_assert_eq!(Some(limit.over_at(&left)), dies_at);
                    }
                }
                state = written.or(state);
            }
        }
    }
}
