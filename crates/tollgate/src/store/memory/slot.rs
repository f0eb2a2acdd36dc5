//! One key's state in 32 bytes.
//!
//! Most algorithms keep an instant and an amount, each below 2^53. The eleven bits that each leaves free hold the
//! number of a [class](super::classes): what all keys of one rule and limit have in common is written once, there.

use tollgate_core::algorithm::bucket::BucketState;
use tollgate_core::algorithm::fixed_window::FixedWindowState;
use tollgate_core::algorithm::meter::MeterState;
use tollgate_core::algorithm::penalty::PenaltyState;
use tollgate_core::{EXACT_MAX, Limit, Operation, Span, State, Time};

use super::classes::ClassId;

const VALUE_BITS: u32 = 53;
const VALUE: u64 = EXACT_MAX;
const HALF_BITS: u32 = u64::BITS - VALUE_BITS;

/// A key and its state, or nothing.
#[derive(Clone, Copy)]
pub(super) struct Slot {
    /// The low half of the fingerprint, by which slots are in order.
    pub(super) hash: u64,
    rest: u64,
    words: [u64; 2],
}

/// What a slot holds for its class to make sense of: an instant and an amount, or where the state lies.
pub(super) type Values = [u64; 2];

impl Default for Slot {
    fn default() -> Slot {
        Slot::EMPTY
    }
}

impl Slot {
    /// No key.
    pub(super) const EMPTY: Slot = Slot { hash: 0, rest: 0, words: [0; 2] };

    pub(super) fn new(fingerprint: u128, class: ClassId, values: Values) -> Slot {
        let mut slot = Slot { hash: fingerprint as u64, rest: (fingerprint >> 64) as u64, words: [0; 2] };
        slot.set(class, values);
        slot
    }

    /// Puts other state in its place.
    pub(super) fn set(&mut self, class: ClassId, values: Values) {
        debug_assert!(values.iter().all(|&value| value <= VALUE), "{values:?}");
        let id = u64::from(class.get());
        let halves = [id & ((1 << HALF_BITS) - 1), id >> HALF_BITS];
        self.words = [values[0] | halves[0] << VALUE_BITS, values[1] | halves[1] << VALUE_BITS];
    }

    /// Puts other state of the same class in its place.
    #[inline]
    pub(super) fn set_values(&mut self, values: Values) {
        debug_assert!(values.iter().all(|&value| value <= VALUE), "{values:?}");
        self.words = [self.words[0] & !VALUE | values[0], self.words[1] & !VALUE | values[1]];
    }

    pub(super) const fn is_empty(&self) -> bool {
        // No class has the number 0.
        (self.words[0] | self.words[1]) >> VALUE_BITS == 0
    }

    pub(super) const fn fingerprint(&self) -> u128 {
        (self.rest as u128) << 64 | self.hash as u128
    }

    /// Whether it is this key's.
    #[inline]
    pub(super) const fn holds(&self, fingerprint: u128) -> bool {
        self.fingerprint() == fingerprint && !self.is_empty()
    }

    pub(super) fn class(&self) -> Option<ClassId> {
        let [low, high] = self.words.map(|word| word >> VALUE_BITS);
        ClassId::new((high << HALF_BITS | low) as u32)
    }

    pub(super) fn values(&self) -> Values {
        self.words.map(|word| word & VALUE)
    }
}

/// The values that, together with the limit that wrote it, are this state; `None` for state that needs more room.
pub(super) fn pack(state: &State) -> Option<Values> {
    match state {
        State::FixedWindow(state) => Some([state.start.us(), state.used]),
        State::Bucket(state) => Some([state.time.us(), state.debt]),
        State::Meter(state) => Some([state.touched.us(), state.value]),
        State::Penalty(state) => Some([state.until.us(), state.failures]),
        State::SlidingWindow(_) | State::SlidingLog(_) | State::Concurrency(_) | State::Quota(_) => None,
    }
}

/// Whether the state of this limit is packed.
pub(super) const fn is_packed(limit: &Limit) -> bool {
    matches!(limit, Limit::FixedWindow(_) | Limit::Bucket(_) | Limit::Meter(_) | Limit::Penalty(_))
}

/// What [`pack`] made of a state that this limit wrote; `None` for limits whose state is never packed.
pub(super) fn unpack(limit: &Limit, values: Values) -> Option<State> {
    match limit {
        Limit::FixedWindow(limit) => Some(State::FixedWindow(window(limit.window(), values))),
        Limit::Bucket(limit) => Some(State::Bucket(bucket(limit.rate().1, values))),
        Limit::Meter(_) => Some(State::Meter(meter(values))),
        Limit::Penalty(_) => {
            Some(State::Penalty(PenaltyState { failures: values[1], until: Time::from_us(values[0]) }))
        }
        Limit::SlidingWindow(_) | Limit::SlidingLog(_) | Limit::Concurrency(_) | Limit::Quota(_) => None,
    }
}

#[inline]
pub(super) fn window(window: Span, [start, used]: Values) -> FixedWindowState {
    FixedWindowState { start: Time::from_us(start), window, used }
}

#[inline]
pub(super) fn bucket(scale: u64, [time, debt]: Values) -> BucketState {
    BucketState { debt, time: Time::from_us(time), scale }
}

#[inline]
pub(super) fn meter([touched, value]: Values) -> MeterState {
    MeterState { value, touched: Time::from_us(touched) }
}

/// From when on the packed state is as good as none: when all is back of what had been consumed at its own instant.
pub(super) fn dies_at(limit: &Limit, values: Values) -> Time {
    let state = unpack(limit, values);
    limit.decide(state.as_ref(), Time::from_us(values[0]), &Operation::Peek { cost: 0 }).answer.reset_at
}
