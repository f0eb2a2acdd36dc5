//! `cargo xtask chaos`: the table of faults, and the drills, with every bound checked.

mod drills;

use anyhow::{Context, Result, anyhow, bail};
use clap::{Args, ValueEnum};
use drills::DRILLS;
use serde_json::json;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};
use tollgate_testkit::chaos::{self, Fault, Row, Settings, Topology};
use tollgate_testkit::drill::DrillError;

#[derive(Args)]
pub(crate) struct Options {
    /// Only these faults and drills, separated by commas.
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    only: Vec<String>,
    /// Only faults on this store.
    #[arg(long, value_enum)]
    topology: Option<Place>,
    /// Print the names of all faults and drills, and run nothing.
    #[arg(long)]
    list: bool,
    /// Only the table of faults, without the drills.
    #[arg(long)]
    table: bool,
    /// Only the ten faults of the short form.
    #[arg(long)]
    short: bool,
    /// Write the figures of the table as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Checks per second in the table, of three servers together.
    #[arg(long, default_value_t = 5_000)]
    rate: u64,
    /// How many seconds a fault of the table lasts without a stated length.
    #[arg(long, default_value_t = 5)]
    length: u64,
    /// How many invented addresses attack the servers.
    #[arg(long, default_value_t = 10_000_000)]
    hostile: u64,
    /// How often a primary fails, per kind of failure, in drills.
    #[arg(long, default_value_t = 10)]
    times: u64,
    /// How many slots are moved in drills.
    #[arg(long, default_value_t = 200)]
    moves: u64,
    /// How many seconds a server hangs in drills, or is dead in the table.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// How many holders of leases, and of reservations, crash.
    #[arg(long, default_value_t = 1_000)]
    holders: usize,
    /// How many charges are refunded or settled while replies are lost.
    #[arg(long, default_value_t = 100_000)]
    returns: u64,
    /// How many subjects two builds count together.
    #[arg(long, default_value_t = 200)]
    subjects: u64,
    /// The earlier commit that `upgrade` runs beside this one. Built with optimisations, in a worktree below `target`.
    #[arg(long, value_name = "REV", conflicts_with = "previous_binary")]
    previous: Option<String>,
    /// The earlier binary `tollgate` that `upgrade` runs beside this one.
    #[arg(long, value_name = "FILE")]
    previous_binary: Option<String>,
    /// How many keys the doctor scans.
    #[arg(long, default_value_t = 1_000_000)]
    keys: u64,
    /// How many processes are killed while the ledger records, on all stores together.
    #[arg(long, default_value_t = 1_000)]
    kills: u64,
    /// How many seconds the database of the ledger is away.
    #[arg(long, default_value_t = 300)]
    away: u64,
    /// The seed of names and random choices.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The binary `tollgate`. Built with optimisations if it is not given.
    #[arg(long, value_name = "FILE")]
    binary: Option<String>,
}

/// A store of the table.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Place {
    /// One Redis behind a proxy.
    One,
    /// A primary and a replica with three sentinels.
    Sentinel,
    /// Three primaries with one replica each.
    Cluster,
}

impl Place {
    const fn topology(self) -> Topology {
        match self {
            Place::One => Topology::One,
            Place::Sentinel => Topology::Sentinel,
            Place::Cluster => Topology::Cluster,
        }
    }
}

/// Runs what is selected, and fails if a bound is broken.
pub(crate) fn run(options: &Options) -> Result<()> {
    if options.list {
        println!("{}", list());
        return Ok(());
    }
    let names = || Fault::ALL.iter().map(|fault| fault.name()).chain(DRILLS.iter().map(|drill| drill.name));
    if let Some(unknown) = options.only.iter().find(|only| !names().any(|name| name == only.as_str())) {
        bail!("unknown fault `{unknown}`\n  = help: `cargo xtask chaos --list` prints all names");
    }
    let began = Instant::now();
    println!("seed {}", options.seed);
    let mut problems = Vec::new();
    let faults = options.faults();
    if !faults.is_empty() {
        problems.extend(table(options, &faults)?);
    }
    for drill in DRILLS.iter().filter(|drill| options.wants_drill(drill.name)) {
        println!("\ndrill {}: {}", drill.name, drill.about);
        problems.extend((drill.run)(options).map_err(|error: DrillError| anyhow!(error))?);
    }
    println!("chaos: {:.1} minutes", began.elapsed().as_secs_f64() / 60.0);
    if problems.is_empty() {
        println!("chaos: all bounds hold");
        return Ok(());
    }
    bail!("{}", problems.join("\n"))
}

impl Options {
    fn faults(&self) -> Vec<Fault> {
        let is_wanted = |fault: &&Fault| {
            let is_named = self.only.is_empty() || self.only.iter().any(|only| only == fault.name());
            let is_there = self.topology.is_none_or(|place| place.topology() == fault.topology());
            is_named && is_there && (!self.short || fault.is_in_short_form())
        };
        Fault::ALL.iter().filter(is_wanted).copied().collect()
    }

    fn wants_drill(&self, name: &str) -> bool {
        if !self.only.is_empty() {
            return self.only.iter().any(|only| only == name);
        }
        !(self.table || self.short || self.topology.is_some())
    }
}

/// Runs the faults one after another. Returns broken bounds.
fn table(options: &Options, faults: &[Fault]) -> Result<Vec<String>> {
    let settings = Settings {
        binary: server_binary(options).map_err(|error| anyhow!(error))?,
        seed: options.seed,
        per_second: options.rate,
        subjects: 100_000,
        deadline: Duration::from_millis(25),
        around: Duration::from_secs(2),
        time: Duration::from_secs(options.length),
        dead: Duration::from_secs(options.seconds),
        hostile: options.hostile,
    };
    let (mut rows, mut problems) = (Vec::new(), Vec::new());
    for (number, fault) in faults.iter().enumerate() {
        // A separate seed, so that every row can be repeated alone.
        let seed = options.seed + Fault::ALL.iter().position(|other| other == fault).unwrap_or(0) as u64;
        let place = fault.topology();
        println!(
            "[{}/{}] {fault} on {place}, seed {seed}: {}",
            number + 1,
            faults.len(),
            fault.about().trim()
        );
        match chaos::run(*fault, &Settings { seed, ..settings.clone() }) {
            Ok(row) => {
                let (took, stall) = (row.took.as_secs(), row.stall.as_millis());
                let (unanswered, overloaded) = (row.unanswered, row.overloaded);
                let happened = &row.happened;
                println!(
                    "    {happened}; {took} s, {unanswered} unanswered, {overloaded} overloaded, stall {stall} ms{}",
                    if row.is_calm { "" } else { ", so bounds on time are not judged" }
                );
                problems.extend(row.problems.iter().cloned());
                row.problems.iter().for_each(|problem| println!("    BROKEN {problem}"));
                rows.push(row);
            }
            Err(error) => {
                println!("    FAILED {error}");
                problems.push(format!("{fault}: {error}"));
            }
        }
    }
    println!("\n{}", chaos::table(&rows));
    if let Some(file) = &options.json {
        let rows: Vec<_> = rows.iter().map(Row::json).collect();
        let text = serde_json::to_string_pretty(&json!({ "rate": options.rate, "rows": rows }))?;
        std::fs::write(file, text + "\n").with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(problems)
}

fn list() -> String {
    let faults = Fault::ALL.iter().map(|fault| {
        let short = if fault.is_in_short_form() { "*" } else { " " };
        format!("{short} {:<18} {:<9} {}", fault.name(), fault.topology(), fault.about().trim())
    });
    let drills = DRILLS.iter().map(|drill| format!("  {:<18} {:<9} {}", drill.name, "drill", drill.about));
    let lines: Vec<String> = faults.chain(drills).collect();
    format!("{}\n\n* also in the short form", lines.join("\n"))
}

/// Returns the server to test. In a debug build, the server would be the slowest part of a drill.
fn server_binary(options: &Options) -> Result<String, DrillError> {
    if let Some(binary) = &options.binary {
        return Ok(binary.clone());
    }
    let mut build = Command::new(env!("CARGO"));
    let built = build.args(["build", "--release", "--locked", "--bin", "tollgate"]).status()?;
    if !built.success() {
        return Err("the server was not built".into());
    }
    let target = std::env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".to_owned());
    Ok(format!("{target}/release/tollgate"))
}
