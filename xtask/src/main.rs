//! Project tasks, run as `cargo xtask <task>`.
//!
//! This file reads the command line and turns a failure into an exit code. Each task is in a separate file.

mod bench;
mod chaos;
mod dependencies;
mod generate;
mod oracle;
#[cfg(test)]
mod scratch;
mod screenshots;
mod setup;
mod simulate_faults;
mod test;
mod tidy;

use clap::{Parser, Subcommand};
use std::path::Path;
use std::process::ExitCode;

/// Tasks for people who work on Tollgate.
#[derive(Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    after_help = "Run `cargo xtask test` before you propose a change: it is everything the gate runs.\n\
                  Exit codes: 0 all is well, 1 a problem was found and printed, 2 the command line is wrong."
)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Prove the tree: format, tidy, dependencies, clippy, tests, docs, generated files.
    ///
    /// Installs what the machine lacks, then runs the stages in order and streams their output. Each stage has
    /// a budget in minutes; a stage over budget is stopped with all processes that it started. The first stage that
    /// fails ends the run. A table at the end shows how much of its budget each stage used.
    #[command(
        after_help = "Missing programs are installed with apt-get on Debian and its relatives, as root or through \
                      a sudo without a password. Elsewhere the task lists what to install, and fails."
    )]
    Test,

    /// Install the programs that tests need and this machine lacks, and nothing else.
    Setup,

    /// Check what the compiler does not: purity of the core, dead files, broken links, leftovers.
    ///
    /// Reads every file that git tracks or would track, and reports all problems at once as `file:line: what`,
    /// each with its fix. Warnings are printed and do not fail.
    #[command(after_help = "Checked:\n  \
        - tollgate-core depends on no runtime and no I/O, reads no clock, holds no floats\n  \
        - no leftover markers, debug macros or ignored tests\n  \
        - every source file is compiled, every page and picture is linked, every link leads somewhere\n  \
        - every lint exception and every unsafe block says why\n  \
        - docs/requirements.md has one entry per requirement, and the tests it names exist\n  \
        - no trailing blanks, no tabs, a newline at the end, no paths of somebody's machine\n\n\
        Files below a folder named generated, vendor or corpus are not ours, and are not read for style.")]
    Tidy,

    /// Check licences, bans, sources and advisories of all dependencies, by the lists in deny.toml.
    ///
    /// Needs no network: the advisories are a snapshot in the tree, and the output states its date.
    #[command(after_help = "Renew the snapshot:\n  \
        git clone --depth 1 https://github.com/rustsec/advisory-db target/advisory-db\n  \
        cargo xtask deny --advisories target/advisory-db")]
    Deny(dependencies::deny::Options),

    /// Print the components of the binary as CycloneDX 1.5, a bill of materials in JSON.
    #[command(after_help = "Example:\n  cargo xtask sbom --output tollgate.cdx.json")]
    Sbom(dependencies::sbom::Options),

    /// Write the files that are generated from code: pictures and reference pages.
    ///
    /// Run it after a change that these files show, and commit the result with the change.
    #[command(after_help = "Examples:\n  \
        cargo xtask gen            write what is missing or stale\n  \
        cargo xtask gen --check    write nothing; name what is missing or stale, and fail")]
    Gen {
        /// Only compare, and fail if a file is missing or stale.
        #[arg(long)]
        check: bool,
    },

    /// Take the pictures of the dashboard, and write the example report of the simulator.
    ///
    /// Starts a server with a demonstration load, and opens it in Chromium. Look at the pictures before you commit them.
    /// The font Inter (on Debian: fonts-inter) gives the look of the published ones.
    Screenshots,

    /// Compare the algorithms with their oracles, step by step, every field of every answer.
    ///
    /// Histories are generated from the seed: charges, peeks, refunds, leases and reservations on clocks that
    /// stand still, jump and step back, while two rule sets share a key. A difference is printed as the smallest
    /// history that shows it. The tests run a shorter form of this.
    #[command(after_help = "Example:\n  \
        cargo xtask oracle --steps 10000000 --seed 7\n  \
        cargo xtask oracle --twins --steps 10000000")]
    Oracle {
        /// Steps in all, shared equally by the algorithms.
        #[arg(long, default_value_t = 1_000_000)]
        steps: u64,
        /// The seed of the generated histories.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Compare the Lua twins on a real Redis too: each step runs on oracle, core and twin.
        #[arg(long)]
        twins: bool,
    },

    /// Simulate servers whose store fails, on virtual time, and check every answer.
    ///
    /// Several limiters with their guards share a model store. Replies are delayed and lost, the store comes and goes,
    /// replicas are promoted without the last writes, clocks differ and step, processes crash. A seed always gives the same
    /// run. The first seed that breaks a promise is printed with the command that replays it.
    #[command(after_help = "Examples:\n  \
        cargo xtask simulate-faults --seeds 100000\n  \
        cargo xtask simulate-faults --seed 7 --seeds 1    replays one run")]
    SimulateFaults(simulate_faults::Options),

    /// Put load on real servers, inject faults, and account for every answer.
    ///
    /// Starts three servers on one Redis, behind sentinels or on a cluster, with an open-loop load, and injects one fault
    /// after another. Each fault gives a row: what was admitted beyond a limit, refused falsely, charged twice or lost, what
    /// failure policies answered, and how long it took. A naive limiter runs beside it as the control. Then the drills run,
    /// with repeated rounds. Fails if a fault did not happen or a bound is broken. The tests run the short form.
    #[command(after_help = "Examples:\n  \
        cargo xtask chaos                              everything; takes about 25 minutes\n  \
        cargo xtask chaos --table --json chaos.json    only the table of faults; about 15 minutes\n  \
        cargo xtask chaos --short                      the ten faults of the tests; about 2 minutes\n  \
        cargo xtask chaos --only sigstop,reshard       two faults\n  \
        cargo xtask chaos --only slots --moves 50      one drill, shorter\n  \
        cargo xtask chaos --list                       the names of all faults and drills\n\n\
        A row is repeated alone with its seed: the seed of the run plus the place of the fault in the list.")]
    Chaos(chaos::Options),

    /// Measure Tollgate and its peers, and write the result to docs/performance.md.
    ///
    /// Builds the package in the folder bench, with peers from the registry, with release optimisation. All contenders run
    /// side by side; in every round each of them runs every row once, and the order changes from round to round.
    /// Compare figures of one run only, and do not use the machine for other work meanwhile.
    #[command(after_help = "Examples:\n  \
        cargo xtask bench                    everything; takes about a quarter of an hour and 8 GiB of memory\n  \
        cargo xtask bench --suite redis      only the cost of a check in Redis\n  \
        cargo xtask bench --suite serve      only the cost of a decision over the network\n  \
        cargo xtask bench --dashboard        only what the dashboard costs a busy server; four minutes\n  \
        cargo xtask bench --quick            shows that the bench works; writes nothing\n  \
        cargo xtask bench --again            writes page and pictures again, from the last run")]
    Bench(bench::Options),
}

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is one folder below the root");
    let done = match Arguments::parse().task {
        Task::Test => test::run(root),
        Task::Setup => setup::run(),
        Task::Tidy => tidy::run(root),
        Task::Deny(options) => dependencies::deny::run(root, &options),
        Task::Sbom(options) => dependencies::sbom::run(root, &options),
        Task::Oracle { steps, seed, twins } => oracle::run(steps, seed, twins),
        Task::SimulateFaults(options) => simulate_faults::run(&options),
        Task::Chaos(options) => chaos::run(&options),
        Task::Bench(options) => bench::run(root, &options),
        Task::Screenshots => screenshots::run(root),
        Task::Gen { check: true } => generate::check(root),
        Task::Gen { check: false } => generate::write(root),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
