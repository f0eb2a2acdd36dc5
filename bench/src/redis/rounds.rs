//! The interleaved run against one server: in every round every contender runs every row once, in many short turns, so
//! that a slow moment of the machine meets all of them.

use std::time::Instant;

use anyhow::{Context, Result};
use tollgate_testkit::redis::{Admin, Flavour, Server};

use super::contender::Entrant;
use super::rows;
use super::running::{Running, Ways};
use super::script::{Keys, PIPELINE};
use crate::report::{self, Measured, Report};
use crate::rounds::order;

/// One workload.
pub(super) struct Row {
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    pub(super) keys: Keys,
    pub(super) entrants: Vec<Entrant>,
}

/// How much is done per contender, row and round.
struct Effort {
    turns: usize,
    /// Per turn. Even, because what one pipeline takes the next may give back.
    pipelines: usize,
}

const FULL: Effort = Effort { turns: 8, pipelines: 64 };
const QUICK: Effort = Effort { turns: 2, pipelines: 20 };

impl Effort {
    const fn checks(&self) -> usize {
        self.turns * self.pipelines * PIPELINE
    }

    /// So many go by before anything is measured: they make the state.
    const fn warm_up(&self) -> usize {
        self.turns / 2 * self.pipelines
    }
}

/// Runs everything.
pub(crate) fn run(rounds: u32, quick: bool) -> Result<Report> {
    let server = Server::start(Flavour::Redis70)?;
    let mut ways = Ways::to(&server)?;
    let effort = if quick { QUICK } else { FULL };
    let rows = rows();
    let mut report = Report {
        suite: "redis".to_owned(),
        rounds,
        decisions: effort.checks() as u64,
        server: Some(version(&mut ways.admin)?),
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
            let costs = run_row(&mut ways, row, &effort, round as usize)?;
            for (measured, (cpu_ns, wall_ns)) in found.results.iter_mut().zip(costs) {
                measured.cpu_ns.push(cpu_ns);
                measured.wall_ns.push(wall_ns);
            }
        }
        eprintln!("  round {} of {rounds}: {:.1} s", round + 1, started.elapsed().as_secs_f64());
    }
    Ok(report)
}

/// One round of one row: what each contender cost, in their order.
fn run_row(ways: &mut Ways, row: &Row, effort: &Effort, round: usize) -> Result<Vec<(f64, f64)>> {
    let mut running = Vec::new();
    let pipelines = effort.warm_up() + effort.turns * effort.pipelines;
    for database in 0..row.entrants.len() {
        let mut started = Running::start(ways, row, database, pipelines, round as u64 + 1)?;
        started.warm_up(ways, 0..effort.warm_up())?;
        running.push(started);
    }
    for turn in 0..effort.turns {
        let from = effort.warm_up() + turn * effort.pipelines;
        for at in order(running.len(), round * effort.turns + turn) {
            running[at].measure(ways, from..from + effort.pipelines)?;
        }
    }
    running.into_iter().map(Running::finish).collect()
}

fn version(admin: &mut Admin) -> Result<String> {
    let fields = admin.info("server")?;
    let version = fields.get("redis_version").context("the server does not tell its version")?;
    Ok(format!("Redis {version}"))
}

fn empty(row: &Row) -> report::Row {
    let results = row.entrants.iter().map(|entrant| Measured {
        contender: entrant.figures_name(),
        cpu_ns: Vec::new(),
        wall_ns: Vec::new(),
        instructions: None,
    });
    let (id, title) = (row.id.to_owned(), row.title.to_owned());
    report::Row { id, title, keys: row.keys.count().into(), results: results.collect() }
}
