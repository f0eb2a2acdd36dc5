//! Decisions on packed state, without unpacking it into the state of any algorithm and back.

use tollgate_core::algorithm::bucket::BucketState;
use tollgate_core::algorithm::fixed_window::FixedWindowState;
use tollgate_core::algorithm::meter::MeterState;
use tollgate_core::{Limit, Machine, Operation, Step, Time, Write};

use super::slot::Values;

/// What [`Limit::decide`] answers and wants written, for the limits and operations of nearly all checks; `None` for others.
/// `values` are what the same limit wrote before.
#[inline]
pub(super) fn step(
    limit: &Limit,
    values: Option<Values>,
    now: Time,
    operation: &Operation,
) -> Option<Step<Values>> {
    let (Operation::Charge { cost, .. } | Operation::Peek { cost }) = *operation else { return None };
    let time = values.map_or(Time::ZERO, |[us, _]| Time::from_us(us));
    let amount = values.map(|[_, amount]| amount);
    match limit {
        Limit::FixedWindow(limit) if cost <= limit.limit() => {
            let window = limit.window();
            let state = amount.map(|used| FixedWindowState { start: time, window, used });
            Some(decide(limit, state.as_ref(), now, operation, |state| [state.start.us(), state.used]))
        }
        Limit::Bucket(limit) if cost <= limit.capacity() => {
            let scale = limit.rate().1;
            let state = amount.map(|debt| BucketState { debt, time, scale });
            Some(decide(limit, state.as_ref(), now, operation, |state| [state.time.us(), state.debt]))
        }
        Limit::Meter(limit) if cost <= Machine::capacity(limit) => {
            let state = amount.map(|value| MeterState { value, touched: time });
            Some(decide(limit, state.as_ref(), now, operation, |state| [state.touched.us(), state.value]))
        }
        _ => None,
    }
}

#[inline]
fn decide<M: Machine>(
    limit: &M,
    state: Option<&M::State>,
    now: Time,
    operation: &Operation,
    values: impl Fn(M::Change) -> Values,
) -> Step<Values> {
    let Step { answer, write } = limit.decide(state, now, operation);
    let write = write.map(|Write { change, dies_at }| Write { change: values(change), dies_at });
    Step { answer, write }
}
