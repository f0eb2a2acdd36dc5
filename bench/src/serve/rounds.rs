//! The interleaved run: in every round every contender runs every row once, in many short turns, so that a slow moment
//! of the machine meets all of them.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::calls::Calls;
use super::contender::{Entrant, Protocol};
use super::lane::{Lane, Questions, ask};
use super::rows;
use super::servers::{Programs, Server, Servers};
use crate::report::{self, Measured, Report};
use crate::rounds::order;
use crate::script::{Spread, every_key, script};

/// One workload.
pub(super) struct Row {
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    /// So many questions are under way on each connection.
    pub(super) pipeline: usize,
    pub(super) entrants: &'static [Entrant],
}

/// How much is done.
struct Effort {
    keys: u64,
    /// Per contender, row and round.
    turns: usize,
    /// Per turn.
    decisions: u64,
}

const FULL: Effort = Effort { keys: 100_000, turns: 8, decisions: 16_384 };
const QUICK: Effort = Effort { keys: 2_000, turns: 2, decisions: 4_096 };

/// When the keys are made known, so many questions are under way on each connection.
const FILL: usize = 16;

/// Who asks it.
enum Clients {
    Lanes(Vec<Lane>),
    Calls(Calls),
}

/// A contender in the middle of a round.
struct Running<'s> {
    entrant: &'static Entrant,
    server: &'s Server,
    clients: Clients,
    cpu: Duration,
    wall: Duration,
}

/// Runs everything.
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
        running.ask(&Questions::about(entrant, &part, at_once))?;
    }
    Ok(())
}

/// One round of one row: what each contender cost, in their order.
fn run_row(servers: &Servers, row: &Row, effort: &Effort, round: usize) -> Result<Vec<(f64, f64)>> {
    let running = row.entrants.iter().map(|entrant| Running::start(servers, entrant, row.pipeline));
    let mut running = running.collect::<Result<Vec<Running<'_>>>>()?;
    // Turn 0 is not measured: the others have taken the caches meanwhile.
    for turn in 0..=effort.turns {
        let seed = (round * (effort.turns + 1) + turn + 1) as u64;
        let keys = script(effort.keys, Spread::Uniform, effort.decisions, seed);
        for at in order(running.len(), round + turn) {
            let contender = &mut running[at];
            let questions = Questions::about(contender.entrant, &keys, row.pipeline);
            contender.take_turn(&questions, turn > 0)?;
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
        let clients = match entrant.protocol {
            Protocol::Grpc => Clients::Calls(Calls::open(port, connections, at_once)?),
            Protocol::Resp | Protocol::Http => {
                Clients::Lanes((0..connections).map(|_| Lane::open(port)).collect::<Result<_>>()?)
            }
        };
        Ok(Running { entrant, server, clients, cpu: Duration::ZERO, wall: Duration::ZERO })
    }

    fn ask(&mut self, questions: &[Questions]) -> Result<()> {
        match &mut self.clients {
            Clients::Lanes(lanes) => ask(lanes, self.entrant, questions),
            Clients::Calls(calls) => calls.ask(self.entrant, questions),
        }
    }

    fn take_turn(&mut self, questions: &[Questions], is_measured: bool) -> Result<()> {
        let (cpu, started) = (self.server.process.cpu()?, Instant::now());
        self.ask(questions)?;
        if is_measured {
            self.wall += started.elapsed();
            self.cpu += self.server.process.cpu()? - cpu;
        }
        Ok(())
    }
}

fn empty(row: &Row, keys: u64) -> report::Row {
    let results = row.entrants.iter().map(|entrant| Measured {
        contender: entrant.name.to_owned(),
        cpu_ns: Vec::new(),
        wall_ns: Vec::new(),
        instructions: None,
    });
    report::Row { id: row.id.to_owned(), title: row.title.to_owned(), keys, results: results.collect() }
}
