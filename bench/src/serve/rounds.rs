//! The interleaved run. In every round every contender runs every row once, in many short turns, so that a slow moment
//! of the machine affects all of them.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::calls::Calls;
use super::client::{Client, Requests, ask};
use super::contender::{Entrant, Protocol};
use super::rows;
use super::servers::{Programs, Server, Servers};
use crate::rounds::order;
use crate::script::{Spread, every_key, script};
use tollgate_bench_report::{Measured, Report};

/// One workload.
pub(super) struct Row {
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    /// Requests in flight per connection.
    pub(super) pipeline: usize,
    pub(super) entrants: &'static [Entrant],
}

/// How much work a run does.
struct Effort {
    keys: u64,
    /// Per contender, row and round.
    turns: usize,
    /// Per turn.
    decisions: u64,
}

const FULL: Effort = Effort { keys: 100_000, turns: 8, decisions: 16_384 };
const QUICK: Effort = Effort { keys: 2_000, turns: 2, decisions: 4_096 };

/// Requests in flight per connection while every key is asked about once.
const FILL: usize = 16;

/// The clients of a contender.
enum Load {
    Clients(Vec<Client>),
    Calls(Calls),
}

/// A contender during a round.
struct Running<'s> {
    entrant: &'static Entrant,
    server: &'s Server,
    load: Load,
    cpu: Duration,
    wall: Duration,
}

/// Runs all rows.
pub(crate) fn run(programs: &Programs, rounds: u32, quick: bool) -> Result<Report> {
    let effort = if quick { QUICK } else { FULL };
    let servers = Servers::start(programs)?;
    let rows = rows();
    let mut report = Report {
        suite: "serve".to_owned(),
        rounds,
        decisions: effort.turns as u64 * effort.decisions,
        server: Some(servers.versions.clone()),
        contenders: Vec::new(),
        rows: rows.iter().map(|row| empty(row, effort.keys)).collect(),
        memory: Vec::new(),
    };
    for entrant in rows.iter().flat_map(|row| row.entrants) {
        if !report.contenders.contains(&entrant.described()) {
            report.contenders.push(entrant.described());
            fill(&servers, entrant, effort.keys)?;
        }
    }
    for round in 0..rounds {
        let started = Instant::now();
        for (row, found) in rows.iter().zip(&mut report.rows) {
            let costs = run_row(&servers, row, &effort, round as usize)?;
            for (measured, (cpu_ns, wall_ns)) in found.results.iter_mut().zip(costs) {
                measured.cpu_ns.push(cpu_ns);
                measured.wall_ns.push(wall_ns);
            }
        }
        eprintln!("  round {} of {rounds}: {:.1} s", round + 1, started.elapsed().as_secs_f64());
    }
    Ok(report)
}

/// Asks about every key once.
fn fill(servers: &Servers, entrant: &'static Entrant, keys: u64) -> Result<()> {
    let at_once = entrant.protocol.at_most(FILL);
    let mut running = Running::start(servers, entrant, at_once)?;
    for part in every_key(keys) {
        running.ask(&Requests::for_keys(entrant, &part, at_once))?;
    }
    Ok(())
}

/// Runs one round of one row; returns the cost of each contender, in order.
fn run_row(servers: &Servers, row: &Row, effort: &Effort, round: usize) -> Result<Vec<(f64, f64)>> {
    let running = row.entrants.iter().map(|entrant| Running::start(servers, entrant, row.pipeline));
    let mut running = running.collect::<Result<Vec<Running<'_>>>>()?;
    // Turn 0 is not measured: it fills the caches again after the other contenders.
    for turn in 0..=effort.turns {
        let seed = (round * (effort.turns + 1) + turn + 1) as u64;
        let keys = script(effort.keys, Spread::Uniform, effort.decisions, seed);
        for at in order(running.len(), round + turn) {
            let contender = &mut running[at];
            let requests = Requests::for_keys(contender.entrant, &keys, row.pipeline);
            contender.take_turn(&requests, turn > 0)?;
        }
    }
    let decisions = effort.turns as f64 * effort.decisions as f64;
    let per_decision = |time: Duration| time.as_nanos() as f64 / decisions;
    Ok(running.iter().map(|running| (per_decision(running.cpu), per_decision(running.wall))).collect())
}

impl<'s> Running<'s> {
    fn start(servers: &'s Servers, entrant: &'static Entrant, at_once: usize) -> Result<Running<'s>> {
        let server = servers.get(entrant.server);
        let (port, connections) = (server.port(entrant.protocol), entrant.protocol.connections());
        let load = match entrant.protocol {
            Protocol::Grpc => Load::Calls(Calls::open(port, connections, at_once)?),
            Protocol::Resp | Protocol::Http => {
                Load::Clients((0..connections).map(|_| Client::open(port)).collect::<Result<_>>()?)
            }
        };
        Ok(Running { entrant, server, load, cpu: Duration::ZERO, wall: Duration::ZERO })
    }

    fn ask(&mut self, requests: &[Requests]) -> Result<()> {
        match &mut self.load {
            Load::Clients(clients) => ask(clients, self.entrant, requests),
            Load::Calls(calls) => calls.ask(self.entrant, requests),
        }
    }

    fn take_turn(&mut self, requests: &[Requests], is_measured: bool) -> Result<()> {
        let (cpu, started) = (self.server.process.cpu()?, Instant::now());
        self.ask(requests)?;
        if is_measured {
            self.wall += started.elapsed();
            self.cpu += self.server.process.cpu()? - cpu;
        }
        Ok(())
    }
}

fn empty(row: &Row, keys: u64) -> tollgate_bench_report::Row {
    let results = row.entrants.iter().map(|entrant| Measured {
        contender: entrant.name.to_owned(),
        cpu_ns: Vec::new(),
        wall_ns: Vec::new(),
        instructions: None,
    });
    tollgate_bench_report::Row {
        id: row.id.to_owned(),
        title: row.title.to_owned(),
        keys,
        results: results.collect(),
    }
}
