//! Oracle, core and Lua twins agree on every field of every answer, on the state they leave and on how long it lives.

use tollgate_testkit::differential::run;
use tollgate_testkit::make_twin;
use tollgate_testkit::redis::{Flavour, Server};
use tollgate_testkit::suite::{self, Make, Suite};
use tollgate_testkit::twin::{Twin, on_server};

/// Per algorithm. `cargo xtask oracle --twins` runs as many as one likes.
const STEPS: u64 = 25_000;
const SEED: u64 = 1;

fn agree<S: Suite>(make: Make<S, Twin>) {
    let server = Server::start(Flavour::Redis70).expect("Redis 7.0");
    let port = server.port();
    let tally = on_server(port, |_, source| source.to_owned(), || run::<S, Twin>(make, STEPS, SEED));
    let tally = tally.unwrap_or_else(|difference| panic!("{difference}"));
    println!("{}: {tally:?}", S::NAME);
    for seen in [tally.admitted, tally.refused, tally.declined, tally.written] {
        assert!(seen > STEPS / 100, "hardly seen: {tally:?}");
    }
}

#[test]
fn fixed_window_and_its_twin_agree() {
    agree::<suite::FixedWindow>(make_twin!(fixed_window, FixedWindow));
}

#[test]
fn sliding_window_and_its_twin_agree() {
    agree::<suite::SlidingWindow>(make_twin!(sliding_window, SlidingWindow));
}

#[test]
fn sliding_log_and_its_twin_agree() {
    agree::<suite::SlidingLog>(make_twin!(sliding_log, SlidingLog));
}

#[test]
fn bucket_and_its_twin_agree() {
    agree::<suite::Bucket>(make_twin!(bucket, Bucket));
}

#[test]
fn concurrency_and_its_twin_agree() {
    agree::<suite::Concurrency>(make_twin!(concurrency, Concurrency));
}

#[test]
fn quota_and_its_twin_agree() {
    agree::<suite::Quota>(make_twin!(quota, Quota));
}

#[test]
fn meter_and_its_twin_agree() {
    agree::<suite::Meter>(make_twin!(meter, Meter));
}

#[test]
fn penalty_and_its_twin_agree() {
    agree::<suite::Penalty>(make_twin!(penalty, Penalty));
}
