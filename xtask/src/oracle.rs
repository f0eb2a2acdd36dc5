//! `cargo xtask oracle`: compares the algorithms, or their Lua twins in Redis, with their oracles for a given number of
//! steps.

use anyhow::{Result, bail};
use std::io::{IsTerminal, Write};
use std::time::Instant;
use tollgate_core::algorithm;
use tollgate_testkit::oracle::differential::{Difference, Tally, run_with};
use tollgate_testkit::oracle::suite;
use tollgate_testkit::redis::{Flavour, Server};
use tollgate_testkit::twin::on_server;
use tollgate_testkit::{make, make_twin};

/// Steps between two progress reports on a terminal.
const PROGRESS_STEPS: u64 = 50_000;

type Run = fn(u64, u64, &dyn Fn(u64)) -> Result<Tally, Difference>;

struct Comparison {
    name: &'static str,
    core: Run,
    twin: Run,
}

/// Builds one [`Comparison`] per suite.
macro_rules! suites {
    ($($suite:ident $file:ident),+ $(,)?) => {
        &[$(Comparison {
            name: <suite::$suite as suite::Suite>::NAME,
            core: |steps, seed, progress| {
                run_with::<suite::$suite, _>(make!($file, algorithm::$file), steps, seed, progress)
            },
            twin: |steps, seed, progress| {
                run_with::<suite::$suite, _>(make_twin!($file, $suite), steps, seed, progress)
            },
        }),+]
    };
}

const SUITES: &[Comparison] = suites![
    FixedWindow fixed_window,
    SlidingWindow sliding_window,
    SlidingLog sliding_log,
    Bucket bucket,
    Concurrency concurrency,
    Quota quota,
    Meter meter,
    Penalty penalty,
];

/// Runs `steps` steps in total, divided equally between the algorithms.
pub(crate) fn run(steps: u64, seed: u64, twins: bool) -> Result<()> {
    if !twins {
        return compare(steps, seed, |suite| suite.core);
    }
    let server = Server::start(Flavour::Redis70)?;
    on_server(server.port(), |_, source| source.to_owned(), || compare(steps, seed, |suite| suite.twin))
}

fn compare(steps: u64, seed: u64, which: fn(&Comparison) -> Run) -> Result<()> {
    let share = steps.div_ceil(SUITES.len() as u64);
    println!("seed {seed}, {share} steps per algorithm");
    println!(
        "{:<15}{:>11}{:>11}{:>11}{:>11}{:>11}{:>11}{:>11}{:>9}",
        "algorithm", "steps", "admitted", "refused", "done", "recorded", "declined", "written", "seconds"
    );
    let (mut compared, mut differences) = (0, 0);
    for suite in SUITES {
        let (name, start) = (suite.name, Instant::now());
        match which(suite)(share, seed, &|done| progress(name, done, share)) {
            Ok(Tally { steps, admitted, refused, done, recorded, declined, written, .. }) => {
                compared += steps;
                let seconds = start.elapsed().as_secs_f64();
                println!(
                    "{name:<15}{steps:>11}{admitted:>11}{refused:>11}{done:>11}{recorded:>11}\
                     {declined:>11}{written:>11}{seconds:>9.1}"
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
        bail!("{differences} differences found; the smallest histories are printed above");
    }
    Ok(())
}

fn progress(name: &str, done: u64, share: u64) {
    if done % PROGRESS_STEPS < 100 && std::io::stdout().is_terminal() {
        print!("{name:<15}{:>3} %\r", done * 100 / share.max(1));
        // A failed progress report must not stop the run.
        std::io::stdout().flush().unwrap_or(());
    }
}
