//! The history checker itself is tested: it must accept whatever a correct store can have answered, however vague the
//! records, and it must detect incorrect stores.
//!
//! - `algorithms` and `records`: hand-made histories that must pass or fail.
//! - `generated`: histories of real machines with blurred instants are accepted; with exact instants every flipped answer
//!   is detected; incorrect stores are detected.
//! - `tiny`: for small histories, every possible order of events is tried.
//! - `sweeps`: the efficient search finds exactly what a comparison of all spans finds, in bounded time.
//!
//! This file holds the limits and records that all of them share.

mod algorithms;
mod driven_store;
mod generated;
mod records;
mod sweeps;
mod tiny;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tollgate_core::algorithm::bucket::Bucket;
use tollgate_core::algorithm::concurrency::Concurrency;
use tollgate_core::algorithm::fixed_window::FixedWindow;
use tollgate_core::algorithm::meter::Meter;
use tollgate_core::algorithm::penalty::{Penalty, PenaltyNumbers};
use tollgate_core::algorithm::quota::{Quota, QuotaPeriod};
use tollgate_core::algorithm::sliding_log::SlidingLog;
use tollgate_core::algorithm::sliding_window::{Counting, SlidingWindow};
use tollgate_core::time::calendar::Periods;
use tollgate_core::{Account, Limit, Operation, Span, State, Time, Token, Verdict as StoreVerdict};
use tollgate_testkit::history::{Broken, CallResult, Checker, Held, History, Record, Unchecked, Verdict};

const KEY: &str = "key";

fn fixed(limit: u64, window_us: u64) -> Limit {
    Limit::FixedWindow(FixedWindow::new(limit, us(window_us)).unwrap())
}

fn log(limit: u64, window_us: u64) -> Limit {
    Limit::SlidingLog(SlidingLog::new(limit, us(window_us)).unwrap())
}

fn sliding(limit: u64, window_us: u64, buckets: u64, counting: Counting) -> Limit {
    Limit::SlidingWindow(SlidingWindow::new(limit, us(window_us), buckets, counting).unwrap())
}

fn strict(limit: u64, window_us: u64, buckets: u64) -> Limit {
    sliding(limit, window_us, buckets, Counting::Strict)
}

fn interpolated(limit: u64, window_us: u64, buckets: u64) -> Limit {
    sliding(limit, window_us, buckets, Counting::Interpolated)
}

fn tokens(rate: u64, period_us: u64, capacity: u64) -> Limit {
    Limit::Bucket(Bucket::tokens(rate, us(period_us), capacity).unwrap())
}

fn shaper(rate: u64, period_us: u64, queue: u64) -> Limit {
    Limit::Bucket(Bucket::queue(rate, us(period_us), queue).unwrap())
}

fn concurrency(limit: u64, lease_us: u64) -> Limit {
    Limit::Concurrency(Concurrency::new(limit, us(lease_us)).unwrap())
}

fn calendar(allowance: u64, grace: u64, starts: [u64; 4]) -> Limit {
    let periods = Periods::new(starts.map(Time::from_us)).unwrap();
    Limit::Quota(Quota::new(allowance, grace, QuotaPeriod::Calendar(periods)).unwrap())
}

fn rolling(allowance: u64, length_us: u64) -> Limit {
    Limit::Quota(Quota::new(allowance, 0, QuotaPeriod::Rolling(us(length_us))).unwrap())
}

fn meter(limit: u64, expiry_us: u64) -> Limit {
    Limit::Meter(Meter::new(Some(limit), Some(us(expiry_us))).unwrap())
}

fn us(us: u64) -> Span {
    Span::from_us(us)
}

fn call(answer: CallResult, cost: u64, start: u64, end: u64) -> Record {
    Record::new(KEY, cost, answer, Time::from_us(start), Time::from_us(end))
}

fn allow(cost: u64, start: u64, end: u64) -> Record {
    call(CallResult::Allow, cost, start, end)
}

fn refuse(cost: u64, start: u64, end: u64) -> Record {
    call(CallResult::Refuse, cost, start, end)
}

fn unknown(cost: u64, start: u64, end: u64) -> Record {
    call(CallResult::Unknown, cost, start, end)
}

fn degraded(cost: u64, start: u64, end: u64) -> Record {
    call(CallResult::Degraded, cost, start, end)
}

fn held(cost: u64, start: u64, end: u64, lease_us: u64) -> Record {
    let record = allow(cost, start, end);
    let lease = Held::leased(record.start, record.end, us(lease_us));
    record.with_held(lease)
}

fn check(limit: Limit, records: Vec<Record>) -> Verdict {
    Checker::new(limit).check(&records.into_iter().collect())
}

/// The violation in a hand-made history.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wrong {
    Nothing,
    /// First and last instant of the span, its cost, and the bound.
    Over(u64, u64, u128, u128),
    /// Start of the refusal, the most that can have counted including it, and the capacity.
    Refused(u64, u128, u128),
}

fn wrongs(verdict: &Verdict) -> Vec<Wrong> {
    let over = verdict.over_admitted.iter();
    let refused = verdict.falsely_refused.iter();
    let over = over.map(|found| Wrong::Over(found.first.us(), found.last.us(), found.sum, found.bound));
    over.chain(refused.map(|found| Wrong::Refused(found.first.us(), found.sum, found.bound))).collect()
}

fn expect(cases: Vec<(&str, Limit, Vec<Record>, Wrong)>) {
    for (what, limit, records, wrong) in cases {
        let verdict = check(limit, records);
        let expected = if wrong == Wrong::Nothing { vec![] } else { vec![wrong] };
        assert_eq!(wrongs(&verdict), expected, "{what}\n{verdict}");
        assert_eq!(verdict.is_clean(), wrong == Wrong::Nothing, "{what}\n{verdict}");
    }
}
