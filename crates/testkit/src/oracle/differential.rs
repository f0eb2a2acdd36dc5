//! The differential test: drives a machine and its oracle with the same generated history and compares every field of
//! every answer. It also checks the invariants that hold at every single step.

mod driver;

use std::cell::Cell;
use std::fmt;

use self::driver::Driver;
pub(crate) use self::driver::is_looking_ahead;
use crate::oracle::suite::{Make, Suite, TestMachine};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

/// One generated step, as raw numbers that the driver interprets. All zeros is the simplest step.
#[derive(Clone, Copy, Debug)]
pub struct GeneratedStep {
    time: u8,
    time_by: u32,
    ask: u8,
    cost: u16,
    pick: u8,
    /// Whether the second of two rules decides. Both share the key.
    second: bool,
    /// By how many spans the caller's clock is wrong.
    skew: u8,
}

impl GeneratedStep {
    /// The step with this number among those that fill a state. Reservations of all of them have different ends.
    const fn filling(number: u32) -> GeneratedStep {
        GeneratedStep {
            time: 0,
            time_by: (number + 1) * 1_300_000,
            ask: 0,
            cost: number as u16,
            pick: 1,
            second: false,
            skew: 0,
        }
    }
}

/// A generated history.
#[derive(Clone, Debug)]
pub struct Case<R> {
    start: u8,
    /// Whether time advances slowly, so that states grow long.
    calm: bool,
    /// Whether there are records, credits and extensions. They keep states short.
    books: bool,
    rules: [R; 2],
    steps: Vec<GeneratedStep>,
}

/// What a run compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Steps compared.
    pub steps: u64,
    /// Admissions.
    pub admitted: u64,
    /// Refusals. Each was checked to end at its retry instant and not one tick earlier.
    pub refused: u64,
    /// Follow-ups that took effect.
    pub done: u64,
    /// Records of at least one unit.
    pub recorded: u64,
    /// Records that left an overdraft.
    pub overdrawn: u64,
    /// Declined operations.
    pub declined: u64,
    /// Writes. Each was checked to be droppable at its `dies_at`.
    pub written: u64,
}

/// The smallest history found on which the machine differs from its oracle or breaks an invariant.
#[derive(Clone, Debug)]
pub struct Difference {
    /// What differs.
    pub what: String,
    /// The history.
    pub history: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{}", self.what, self.history)
    }
}

/// Runs about `steps` generated steps from `seed`.
pub fn run<S: Suite, M: TestMachine>(make: Make<S, M>, steps: u64, seed: u64) -> Result<Tally, Difference> {
    run_with::<S, M>(make, steps, seed, |_| ())
}

/// Like [`run`], but does not shrink the history of a difference.
pub fn find_difference<S: Suite, M: TestMachine>(
    make: Make<S, M>,
    steps: u64,
    seed: u64,
) -> Result<Tally, Difference> {
    compare::<S, M>(make, steps, seed, 0, |_| ())
}

/// Like [`run`], and calls `progress` after each history with the number of steps compared so far.
pub fn run_with<S: Suite, M: TestMachine>(
    make: Make<S, M>,
    steps: u64,
    seed: u64,
    progress: impl Fn(u64),
) -> Result<Tally, Difference> {
    compare::<S, M>(make, steps, seed, 20_000, progress)
}

fn compare<S: Suite, M: TestMachine>(
    make: Make<S, M>,
    steps: u64,
    seed: u64,
    max_shrink_iters: u32,
    progress: impl Fn(u64),
) -> Result<Tally, Difference> {
    let config = Config { failure_persistence: None, max_shrink_iters, cases: u32::MAX, ..Config::default() };
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &key));
    let strategy = cases::<S>();
    let tally = Cell::new(Tally::default());
    while tally.get().steps < steps {
        let tree = strategy.new_tree(&mut runner).map_err(|reason| Difference {
            what: format!("no history could be generated: {reason}"),
            history: String::new(),
        })?;
        let result = runner.run_one(tree, |case| {
            let mut driver = Driver::<S, M>::new(make, &case, tally.get());
            driver.run(&case).map_err(TestCaseError::fail)?;
            tally.set(driver.tally);
            Ok(())
        });
        match result {
            Ok(_) => progress(tally.get().steps),
            Err(TestError::Fail(what, case)) => {
                return Err(Difference { what: what.to_string(), history: format!("{case:#?}") });
            }
            Err(TestError::Abort(what)) => {
                return Err(Difference { what: what.to_string(), history: String::new() });
            }
        }
    }
    Ok(tally.get())
}

fn cases<S: Suite>() -> impl Strategy<Value = Case<S::Rule>> {
    let step = (any::<u8>(), any::<u32>(), any::<u8>(), any::<u16>(), any::<u8>(), 0..8_u8, any::<u8>())
        .prop_map(|(time, time_by, ask, cost, pick, second, skew)| GeneratedStep {
            time,
            time_by,
            ask,
            cost,
            pick,
            second: second == 7,
            skew,
        });
    (
        any::<u8>(),
        0..4_u8,
        any::<bool>(),
        S::rules(),
        S::rules(),
        prop::collection::vec(step, 1..S::STEPS_MAX),
    )
        .prop_map(|(start, calm, books, first, second, steps)| Case {
            start,
            calm: calm == 3,
            books,
            rules: [first, second],
            steps,
        })
}
