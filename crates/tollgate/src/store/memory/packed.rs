//! Charges on packed state, in two steps: what must be found out under the lock, and what can be told after it.

use tollgate_core::algorithm::bucket::{Bucket, BucketState};
use tollgate_core::algorithm::fixed_window::{FixedWindow, FixedWindowState};
use tollgate_core::algorithm::meter::{Meter, MeterState};
use tollgate_core::{Answer, Limit, Time};

use super::slot::{Values, bucket, meter, window};

/// What an admitted charge leaves behind.
#[derive(Clone, Copy)]
pub(super) enum Charged<'l> {
    Bucket(&'l Bucket, BucketState),
    FixedWindow(&'l FixedWindow, FixedWindowState),
    Meter(&'l Meter, MeterState),
}

/// Charges `cost`; `None` if it is not admitted, or if this limit has no short way. `values` are what the same limit wrote
/// before.
#[inline(always)]
pub(super) fn charge(limit: &Limit, values: Values, now: Time, cost: u64) -> Option<Charged<'_>> {
    let asks = |capacity: u64| (1..=capacity).contains(&cost);
    match limit {
        Limit::Bucket(limit) if asks(limit.capacity()) => {
            let left = limit.charged(Some(&bucket(limit.rate().1, values)), now, cost)?;
            Some(Charged::Bucket(limit, left))
        }
        Limit::FixedWindow(limit) if asks(limit.limit()) => {
            let left = limit.charged(Some(&window(limit.window(), values)), now, cost)?;
            Some(Charged::FixedWindow(limit, left))
        }
        Limit::Meter(limit) if asks(limit.limit()) => {
            Some(Charged::Meter(limit, limit.charged(Some(&meter(values)), now, cost)?))
        }
        _ => None,
    }
}

impl Charged<'_> {
    /// To be written under the lock.
    #[inline]
    pub(super) const fn values(&self) -> Values {
        match self {
            Charged::Bucket(_, left) => [left.time.us(), left.debt],
            Charged::FixedWindow(_, left) => [left.start.us(), left.used],
            Charged::Meter(_, left) => [left.touched.us(), left.value],
        }
    }

    /// To be told after it. Always inlined, so that who does not look at a number does not pay for it.
    #[inline(always)]
    pub(super) fn answer(&self, cost: u64) -> Answer {
        match self {
            Charged::Bucket(limit, left) => limit.admitted(left, cost),
            Charged::FixedWindow(limit, left) => limit.admitted(left),
            Charged::Meter(limit, left) => limit.admitted(left),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
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
                        prop_assert_eq!(charged.answer(cost), step.answer);
                    }
                }
                if let Some(write) = step.write {
                    State::commit(&mut state, write.change);
                }
            }
        }
    }
}
