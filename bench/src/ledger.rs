//! The ledger suite: what it costs to post entries to SQLite and PostgreSQL, and what a recorded check costs the server.

mod bare;
mod checks;
mod posting;

use std::time::Instant;

use anyhow::{Context, Result};
use rustix::time::{ClockId, clock_gettime};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tollgate_bench_report::{Contender, Measured, Report, Row};
use tollgate_testkit::postgres::Postgres;

use crate::rounds::order;

/// How much work is done per contender and round.
#[derive(Clone, Copy)]
struct Effort {
    /// Entries that are posted one by one; batches post 16 times as many.
    single: usize,
    checks: usize,
}

const FULL: Effort = Effort { single: 1_024, checks: 200_000 };
const QUICK: Effort = Effort { single: 64, checks: 2_000 };

/// The cost of one entry or check.
struct Cost {
    cpu_ns: f64,
    wall_ns: f64,
}

/// Measures a run of `work`, which returns how many units it did.
fn measured(work: impl FnOnce() -> Result<usize>) -> Result<Cost> {
    let cpu = || {
        let now = clock_gettime(ClockId::ProcessCPUTime);
        now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
    };
    let (before, began) = (cpu(), Instant::now());
    let units = work()? as f64;
    Ok(Cost { cpu_ns: (cpu() - before) / units, wall_ns: began.elapsed().as_nanos() as f64 / units })
}

/// One contender of a row.
struct Entrant<'a> {
    name: &'static str,
    what: &'static str,
    run: Box<dyn FnMut() -> Result<Cost> + 'a>,
}

/// Runs all rows.
pub(crate) fn run(rounds: u32, quick: bool) -> Result<Report> {
    let effort = if quick { QUICK } else { FULL };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let folder = TempDir::new().context("cannot make a folder")?;
    let postgres = Postgres::start().context("cannot start PostgreSQL")?;
    let mut report = Report {
        suite: "ledger".to_owned(),
        rounds,
        decisions: effort.single as u64,
        server: Some(postgres.psql("postgres", "SHOW server_version").map(|version| format!("PostgreSQL {version}"))?),
        contenders: Vec::new(),
        rows: Vec::new(),
        memory: Vec::new(),
    };
    let file = posting::sqlite(&runtime, &folder, effort)?;
    row(&mut report, ("sqlite", "SQLite"), file, rounds)?;
    let server = posting::postgres(&runtime, &postgres, effort)?;
    row(&mut report, ("postgres", "PostgreSQL"), server, rounds)?;
    let checks = checks::entrants(&runtime, &folder, effort)?;
    row(&mut report, ("checks", "Checks, 64 in flight"), checks, rounds)?;
    Ok(report)
}

fn row(
    report: &mut Report,
    (id, title): (&str, &str),
    mut entrants: Vec<Entrant<'_>>,
    rounds: u32,
) -> Result<()> {
    for entrant in &entrants {
        let described = Contender { name: entrant.name.to_owned(), what: entrant.what.to_owned() };
        if !report.contenders.contains(&described) {
            report.contenders.push(described);
        }
    }
    let empty = |entrant: &Entrant<'_>| Measured {
        contender: entrant.name.to_owned(),
        cpu_ns: Vec::new(),
        wall_ns: Vec::new(),
        instructions: None,
    };
    let mut results: Vec<Measured> = entrants.iter().map(empty).collect();
    // The first round fills caches and prepares statements.
    for round in 0..=rounds {
        for at in order(entrants.len(), round as usize) {
            let cost = (entrants[at].run)().with_context(|| entrants[at].name)?;
            if round > 0 {
                results[at].cpu_ns.push(cost.cpu_ns);
                results[at].wall_ns.push(cost.wall_ns);
            }
        }
        eprintln!("  {title}: round {round} of {rounds}");
    }
    report.rows.push(Row { id: id.to_owned(), title: title.to_owned(), keys: posting::ACCOUNTS as u64, results });
    Ok(())
}

/// Runs a future of a contender.
fn block_on<T>(runtime: &Runtime, work: impl Future<Output = Result<T>>) -> Result<T> {
    runtime.block_on(work)
}
