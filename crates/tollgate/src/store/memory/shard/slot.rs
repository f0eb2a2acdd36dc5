//! One key and its state in 32 bytes.
//!
//! The state of most algorithms is an instant and an amount, each below 2^53. The eleven bits that each leaves free hold
//! the id of a [class](crate::store::memory::classes), which stores once what all keys of one rule and limit have in common.

use tollgate_core::algorithm::bucket::BucketState;
use tollgate_core::algorithm::fixed_window::FixedWindowState;
use tollgate_core::algorithm::meter::MeterState;
use tollgate_core::algorithm::penalty::PenaltyState;
use tollgate_core::{EXACT_MAX, Limit, Operation, Span, State, Time};

use crate::store::memory::classes::ClassId;

const VALUE_BITS: u32 = 53;
const VALUE_MASK: u64 = EXACT_MAX;
/// Each word holds one half of the class id above its value.
const CLASS_HALF_BITS: u32 = u64::BITS - VALUE_BITS;

/// A table entry: a key and its state, or empty.
#[derive(Clone, Copy)]
pub(crate) struct Slot {
    /// The low half of the fingerprint. The table is sorted by it.
    pub(crate) hash: u64,
    fingerprint_high: u64,
    words: [u64; 2],
}

/// What a slot stores of a state: an instant and an amount, or a heap index and 0. The class says which.
pub(crate) type PackedState = [u64; 2];

impl Default for Slot {
    fn default() -> Slot {
        Slot::EMPTY
    }
}

impl Slot {
    pub(crate) const EMPTY: Slot = Slot { hash: 0, fingerprint_high: 0, words: [0; 2] };

    pub(crate) fn new(fingerprint: u128, class: ClassId, state: PackedState) -> Slot {
        let mut slot =
            Slot { hash: fingerprint as u64, fingerprint_high: (fingerprint >> 64) as u64, words: [0; 2] };
        slot.set(class, state);
        slot
    }

    /// Replaces class and state.
    pub(crate) fn set(&mut self, class: ClassId, state: PackedState) {
        debug_assert!(state.iter().all(|&value| value <= VALUE_MASK), "{state:?}");
        let id = u64::from(class.get());
        let halves = [id & ((1 << CLASS_HALF_BITS) - 1), id >> CLASS_HALF_BITS];
        self.words = [state[0] | halves[0] << VALUE_BITS, state[1] | halves[1] << VALUE_BITS];
    }

    /// Replaces the state and keeps the class.
    #[inline]
    pub(crate) fn set_state(&mut self, state: PackedState) {
        debug_assert!(state.iter().all(|&value| value <= VALUE_MASK), "{state:?}");
        self.words = [self.words[0] & !VALUE_MASK | state[0], self.words[1] & !VALUE_MASK | state[1]];
    }

    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        // Class ids start at 1.
        (self.words[0] | self.words[1]) >> VALUE_BITS == 0
    }

    #[inline]
    pub(crate) const fn fingerprint(&self) -> u128 {
        (self.fingerprint_high as u128) << 64 | self.hash as u128
    }

    /// Whether the slot stores the state of this key.
    #[inline]
    pub(crate) const fn holds(&self, fingerprint: u128) -> bool {
        self.fingerprint() == fingerprint && !self.is_empty()
    }

    #[inline]
    pub(crate) fn class(&self) -> Option<ClassId> {
        let [low, high] = self.words.map(|word| word >> VALUE_BITS);
        ClassId::new((high << CLASS_HALF_BITS | low) as u32)
    }

    #[inline]
    pub(crate) fn state(&self) -> PackedState {
        self.words.map(|word| word & VALUE_MASK)
    }

    /// Where the state is stored on the heap, for classes of that form.
    #[inline]
    pub(crate) const fn heap_index(&self) -> u32 {
        (self.words[0] & VALUE_MASK) as u32
    }
}

/// Packs a state; `None` if it is too large. [`unpack`] needs the limit that wrote it.
pub(crate) fn pack(state: &State) -> Option<PackedState> {
    match state {
        State::FixedWindow(state) => Some([state.start.us(), state.used]),
        State::Bucket(state) => Some([state.time.us(), state.debt]),
        State::Meter(state) => Some([state.touched.us(), state.value]),
        State::Penalty(state) => Some([state.until.us(), state.failures]),
        State::SlidingWindow(_)
        | State::BucketRing(_)
        | State::SlidingLog(_)
        | State::Concurrency(_)
        | State::Stamped(_)
        | State::Quota(_) => None,
    }
}

/// Whether the state of this limit fits into a slot.
pub(crate) const fn is_packed(limit: &Limit) -> bool {
    matches!(limit, Limit::FixedWindow(_) | Limit::Bucket(_) | Limit::Meter(_) | Limit::Penalty(_))
}

/// Unpacks a state that this limit wrote; `None` for limits whose state is never packed.
pub(crate) fn unpack(limit: &Limit, packed: PackedState) -> Option<State> {
    match limit {
        Limit::FixedWindow(limit) => Some(State::FixedWindow(window(limit.window(), packed))),
        Limit::Bucket(limit) => Some(State::Bucket(bucket(limit.rate().1, packed))),
        Limit::Meter(_) => Some(State::Meter(meter(packed))),
        Limit::Penalty(_) => {
            Some(State::Penalty(PenaltyState { failures: packed[1], until: Time::from_us(packed[0]) }))
        }
        Limit::SlidingWindow(_) | Limit::SlidingLog(_) | Limit::Concurrency(_) | Limit::Quota(_) => None,
    }
}

#[inline]
pub(crate) fn window(window: Span, [start, used]: PackedState) -> FixedWindowState {
    FixedWindowState { start: Time::from_us(start), window, used }
}

#[inline]
pub(crate) fn bucket(scale: u64, [time, debt]: PackedState) -> BucketState {
    BucketState { debt, time: Time::from_us(time), scale }
}

#[inline]
pub(crate) fn meter([touched, value]: PackedState) -> MeterState {
    MeterState { value, touched: Time::from_us(touched) }
}

/// When the packed state expires: when everything consumed at its own instant has come back.
pub(crate) fn dies_at(limit: &Limit, packed: PackedState) -> Time {
    let state = unpack(limit, packed);
    limit.decide(state.as_ref(), Time::from_us(packed[0]), &Operation::Peek { cost: 0 }).answer.reset_at
}
