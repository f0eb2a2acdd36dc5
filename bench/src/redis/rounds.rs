//! The interleaved run against one server. In every round every contender runs every row once, in many short turns, so
//! that a slow moment of the machine affects all of them.

use std::time::Instant;

use anyhow::{Context, Result};
use tollgate_testkit::redis::{Admin, Flavour, Server};

use super::contender::Entrant;
use super::rows;
use super::running::{Connections, Running};
use super::script::{Keys, PIPELINE};
use crate::rounds::order;
use tollgate_bench_report::{Measured, Report};

/// One workload.
pub(super) struct Row {
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    pub(super) keys: Keys,
    pub(super) entrants: Vec<Entrant>,
}

/// How much work is done per contender, row and round.
struct Effort {
    turns: usize,
    /// Pipelines per turn. Even, because the next pipeline may release what one took.
    pipelines: usize,
}

const FULL: Effort = Effort { turns: 8, pipelines: 64 };
const QUICK: Effort = Effort { turns: 2, pipelines: 20 };

impl Effort {
    const fn checks(&self) -> usize {
        self.turns * self.pipelines * PIPELINE
    }

    /// Pipelines before the measurement: they create the state.
    const fn warm_up(&self) -> usize {
        self.turns / 2 * self.pipelines
    }
}

/// Runs all rows.
pub(crate) fn run(rounds: u32, quick: bool) -> Result<Report> {
    let server = Server::start(Flavour::Redis70)?;
    let mut connections = Connections::to(&server)?;
    let effort = if quick { QUICK } else { FULL };
    let rows = rows();
    let mut report = Report {
        suite: "redis".to_owned(),
        rounds,
        decisions: effort.checks() as u64,
        server: Some(version(&mut connections.admin)?),
        contenders: Vec::new(),
        rows: rows.iter().map(empty).collect(),
        memory: Vec::new(),
    };
    for entrant in rows.iter().flat_map(|row| &row.entrants) {
        if !report.contenders.contains(&entrant.described()) {
            report.contenders.push(entrant.described());
        }
    }
    for round in 0..rounds {
        let started = Instant::now();
        for (row, found) in rows.iter().zip(&mut report.rows) {
            let costs = run_row(&mut connections, row, &effort, round as usize)?;
            for (measured, (cpu_ns, wall_ns)) in found.results.iter_mut().zip(costs) {
                measured.cpu_ns.push(cpu_ns);
                measured.wall_ns.push(wall_ns);
            }
        }
        eprintln!("  round {} of {rounds}: {:.1} s", round + 1, started.elapsed().as_secs_f64());
    }
    Ok(report)
}

/// Runs one round of one row; returns the cost of each contender, in order.
fn run_row(
    connections: &mut Connections,
    row: &Row,
    effort: &Effort,
    round: usize,
) -> Result<Vec<(f64, f64)>> {
    let mut running = Vec::new();
    let pipelines = effort.warm_up() + effort.turns * effort.pipelines;
    for database in 0..row.entrants.len() {
        let mut started = Running::start(connections, row, database, pipelines, round as u64 + 1)?;
        started.warm_up(connections, 0..effort.warm_up())?;
        running.push(started);
    }
    for turn in 0..effort.turns {
        let from = effort.warm_up() + turn * effort.pipelines;
        for at in order(running.len(), round * effort.turns + turn) {
            running[at].measure(connections, from..from + effort.pipelines)?;
        }
    }
    running.into_iter().map(Running::finish).collect()
}

fn version(admin: &mut Admin) -> Result<String> {
    let fields = admin.info("server")?;
    let version = fields.get("redis_version").context("INFO has no redis_version")?;
    Ok(format!("Redis {version}"))
}

fn empty(row: &Row) -> tollgate_bench_report::Row {
    let results = row.entrants.iter().map(|entrant| Measured {
        contender: entrant.figures_name(),
        cpu_ns: Vec::new(),
        wall_ns: Vec::new(),
        instructions: None,
    });
    let (id, title) = (row.id.to_owned(), row.title.to_owned());
    tollgate_bench_report::Row { id, title, keys: row.keys.count().into(), results: results.collect() }
}
