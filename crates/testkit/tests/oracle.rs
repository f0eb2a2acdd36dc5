//! Oracle and core agree on every field of every answer.

use tollgate_core::{Limit, algorithm};
use tollgate_testkit::make;
use tollgate_testkit::oracle::differential::{Tally, run};
use tollgate_testkit::oracle::suite::{self, Suite, TestMachine};
use tollgate_testkit::oracle::suite::{LimitMachine, Make};

/// Steps per algorithm. `cargo xtask oracle` runs any number.
const STEPS: u64 = 200_000;
const SEED: u64 = 1;

fn agree<S: Suite, M: TestMachine>(make: Make<S, M>) -> Tally {
    let tally = run::<S, M>(make, STEPS, SEED).unwrap_or_else(|difference| panic!("{difference}"));
    println!("{}: {tally:?}", S::NAME);
    tally
}

/// Also checks that the run had admissions, refusals, declines and writes. Otherwise it would prove little.
fn agree_on_rates<S: Suite, M: TestMachine>(make: Make<S, M>) -> Tally {
    let tally = agree::<S, M>(make);
    for seen in [tally.admitted, tally.refused, tally.declined, tally.written] {
        assert!(seen > STEPS / 100, "hardly seen: {tally:?}");
    }
    tally
}

/// Also checks that the run had records, some of them above the limit.
fn agree_on_records<S: Suite, M: TestMachine>(make: Make<S, M>) {
    let tally = agree_on_rates::<S, M>(make);
    assert!(tally.recorded > STEPS / 50 && tally.overdrawn > STEPS / 200, "hardly recorded: {tally:?}");
}

#[test]
fn fixed_window_agrees_with_its_oracle() {
    agree_on_records::<suite::FixedWindow, _>(make!(fixed_window, algorithm::fixed_window));
}

#[test]
fn sliding_window_agrees_with_its_oracle() {
    agree_on_records::<suite::SlidingWindow, _>(make!(sliding_window, algorithm::sliding_window));
}

#[test]
fn sliding_window_of_many_buckets_agrees_with_its_oracle() {
    agree_on_records::<suite::BucketRing, _>(make!(bucket_ring, algorithm::bucket_ring));
}

#[test]
fn sliding_windows_of_few_and_many_buckets_share_a_key() {
    let tally = agree::<suite::AnyBuckets, _>(|numbers| {
        let window = make!(sliding_window, algorithm::sliding_window)(numbers)?;
        Ok(LimitMachine(Limit::SlidingWindow(window)))
    });
    assert!(tally.admitted > STEPS / 100 && tally.refused > STEPS / 100, "hardly seen: {tally:?}");
}

#[test]
fn sliding_log_agrees_with_its_oracle() {
    agree_on_records::<suite::SlidingLog, _>(make!(sliding_log, algorithm::sliding_log));
}

#[test]
fn bucket_agrees_with_its_oracle() {
    agree_on_records::<suite::Bucket, _>(make!(bucket, algorithm::bucket));
}

#[test]
fn concurrency_agrees_with_its_oracle() {
    agree_on_rates::<suite::Concurrency, _>(make!(concurrency, algorithm::concurrency));
}

#[test]
fn quota_agrees_with_its_oracle() {
    agree_on_records::<suite::Quota, _>(make!(quota, algorithm::quota));
}

#[test]
fn quota_agrees_with_its_oracle_beyond_64_ends() {
    let tally = agree::<suite::Reservations, _>(make!(quota, algorithm::quota));
    assert!(tally.admitted > STEPS / 4 && tally.done > STEPS / 50, "hardly seen: {tally:?}");
}

#[test]
fn meter_agrees_with_its_oracle() {
    agree_on_records::<suite::Meter, _>(make!(meter, algorithm::meter));
}

#[test]
fn penalty_agrees_with_its_oracle() {
    agree_on_rates::<suite::Penalty, _>(make!(penalty, algorithm::penalty));
}
