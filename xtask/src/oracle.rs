//! `cargo xtask oracle`: the real algorithms against their naive models, for as many steps as one likes.

use anyhow::{Result, bail};
use std::io::{IsTerminal, Write};
use std::time::Instant;
use tollgate_core::algorithm;
use tollgate_testkit::differential::{Difference, Tally, run_with};
use tollgate_testkit::{make, suite};

/// How often a terminal is told how far a run has come, in steps.
const PROGRESS: u64 = 50_000;

type Run = fn(u64, u64, &dyn Fn(u64)) -> Result<Tally, Difference>;

/// Every suite, by the name of its algorithm.
macro_rules! suites {
    ($($suite:ident $file:ident),+ $(,)?) => {
        &[$((
            <suite::$suite as suite::Suite>::NAME,
            |steps, seed, progress| {
                run_with::<suite::$suite, _>(make!($file, algorithm::$file), steps, seed, progress)
            },
        )),+]
    };
}

const SUITES: &[(&str, Run)] = suites![
    FixedWindow fixed_window,
    SlidingWindow sliding_window,
    SlidingLog sliding_log,
    Bucket bucket,
    Concurrency concurrency,
    Quota quota,
    Meter meter,
    Penalty penalty,
];

/// Runs `steps` in all, an equal share for each algorithm.
pub(crate) fn run(steps: u64, seed: u64) -> Result<()> {
    let share = steps.div_ceil(SUITES.len() as u64);
    println!("seed {seed}, {share} steps per algorithm");
    println!(
        "{:<15}{:>11}{:>11}{:>11}{:>11}{:>11}{:>11}{:>9}",
        "algorithm", "steps", "admitted", "refused", "done", "declined", "written", "seconds"
    );
    let (mut compared, mut differences) = (0, 0);
    for (name, suite) in SUITES {
        let start = Instant::now();
        match suite(share, seed, &|done| progress(name, done, share)) {
            Ok(Tally { steps, admitted, refused, done, declined, written }) => {
                compared += steps;
                let seconds = start.elapsed().as_secs_f64();
                println!(
                    "{name:<15}{steps:>11}{admitted:>11}{refused:>11}{done:>11}{declined:>11}{written:>11}{seconds:>9.1}"
                );
            }
            Err(difference) => {
                differences += 1;
                println!("{name}: {difference}");
            }
        }
    }
    println!("{compared} steps compared, {differences} differences");
    if differences > 0 {
        bail!("core and oracle differ; the smallest histories found are above");
    }
    Ok(())
}

fn progress(name: &str, done: u64, share: u64) {
    if done % PROGRESS < 100 && std::io::stdout().is_terminal() {
        print!("{name:<15}{:>3} %\r", done * 100 / share.max(1));
        // A line that does not reach the terminal is no reason to stop proving.
        std::io::stdout().flush().unwrap_or(());
    }
}
