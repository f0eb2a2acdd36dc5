//! Measures the bytes of one subject's state, in the layout that all stores share.

use crate::generate::measure::BUCKETS;
use tollgate_core::algorithm::bucket::Bucket;
use tollgate_core::algorithm::concurrency::ConcurrencyState;
use tollgate_core::algorithm::fixed_window::FixedWindow;
use tollgate_core::algorithm::hold_sums::{HoldSums, PAIRS_MAX, Pair};
use tollgate_core::algorithm::meter::Meter;
use tollgate_core::algorithm::penalty::PenaltyState;
use tollgate_core::algorithm::quota::QuotaState;
use tollgate_core::algorithm::sliding_log::SlidingLog;
use tollgate_core::algorithm::sliding_window::{Counting, SlidingWindow};
use tollgate_core::plan::hold::HOLD_BYTES;
use tollgate_core::{Account, Limit, LimitError, Operation, Span, State, Time, Token};

const MINUTE: Span = Span::from_secs(60);

/// Bytes of one subject's state.
pub(super) struct StateSizes {
    pub(super) fixed_window: usize,
    /// Pairs of bucket count and bytes.
    pub(super) windows: Vec<(u64, usize)>,
    pub(super) log: RecordSize,
    pub(super) bucket: usize,
    pub(super) concurrency: HoldSize,
    pub(super) quota: HoldSize,
    pub(super) meter: usize,
    pub(super) penalty: usize,
}

/// Bytes of a state whose size depends on its number of records.
pub(super) struct RecordSize {
    pub(super) base: usize,
    pub(super) per_record: usize,
}

/// Bytes of a state that holds units for leases or reservations, and of the record of each.
pub(super) struct HoldSize {
    pub(super) least: usize,
    pub(super) most: usize,
    pub(super) per_hold: usize,
}

impl HoldSize {
    /// Computes the sizes from the bytes of a state without holds and of one with the most ends.
    fn new(encoded: impl Fn(HoldSums) -> State) -> HoldSize {
        let pair = |end| Pair { end: Time::from_us(end), units: 1 };
        let bytes = |pairs: u64| encoded(HoldSums { pairs: (1..=pairs).map(pair).collect() }).encode().len();
        HoldSize { least: bytes(0), most: bytes(PAIRS_MAX as u64), per_hold: HOLD_BYTES }
    }
}

impl RecordSize {
    /// Computes both parts from the bytes of a state with one record and with two.
    fn from_one_and_two(one: usize, two: usize) -> RecordSize {
        let per_record = two - one;
        RecordSize { base: one - per_record, per_record }
    }

    /// Returns the bytes of a state with this number of records.
    pub(super) fn with_records(&self, records: usize) -> usize {
        self.base + records * self.per_record
    }
}

impl StateSizes {
    pub(super) fn measure() -> Result<StateSizes, LimitError> {
        let record_size = |limit| RecordSize::from_one_and_two(state_bytes(limit, 1), state_bytes(limit, 2));
        let mut windows = Vec::new();
        for buckets in BUCKETS {
            let limit = SlidingWindow::new(100, MINUTE, buckets, Counting::Strict)?;
            windows.push((buckets, state_bytes(Limit::SlidingWindow(limit), 1)));
        }
        Ok(StateSizes {
            fixed_window: state_bytes(Limit::FixedWindow(FixedWindow::new(100, MINUTE)?), 1),
            windows,
            log: record_size(Limit::SlidingLog(SlidingLog::new(100, MINUTE)?)),
            bucket: state_bytes(Limit::Bucket(Bucket::tokens(1, MINUTE, 100)?), 1),
            concurrency: HoldSize::new(|sums| {
                State::Concurrency(ConcurrencyState { sums, ..ConcurrencyState::default() })
            }),
            quota: HoldSize::new(|sums| State::Quota(QuotaState { sums, ..QuotaState::default() })),
            meter: state_bytes(Limit::Meter(Meter::new(None, None)?), 1),
            penalty: State::Penalty(PenaltyState { failures: 1, until: Time::MAX }).encode().len(),
        })
    }

    /// Returns the bytes of a sliding window with this number of buckets.
    pub(super) fn window(&self, buckets: u64) -> usize {
        self.windows.iter().find(|(k, _)| *k == buckets).map_or(0, |(_, bytes)| *bytes)
    }
}

/// Returns the bytes of one subject's state after `charges` charges, one second apart.
fn state_bytes(limit: Limit, charges: u64) -> usize {
    let mut account = Account::default();
    for n in 0..charges {
        let token = Token(u128::from(n + 1));
        let now = Time::ZERO.plus(Span::from_secs(n));
        account.apply(&limit, now, &Operation::Charge { cost: 1, token });
    }
    account.state.map_or(0, |state| state.encode().len())
}
