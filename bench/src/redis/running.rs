//! A contender during a round: what it sent, what it received, and the cost.

use std::ops::Range;
use std::time::Instant;

use anyhow::{Result, ensure};
use tollgate_testkit::redis::{Admin, Server};

use super::connection::{Connection, Pipeline, Replies};
use super::contender::{Contender, Entrant, SendMode};
use super::rounds::Row;
use super::script::{Check, PIPELINE, script};
use super::store::AskedStore;
use crate::resp::command;
use crate::script::every_key;

/// Both connections to the server: the measured one, and one for administration.
pub(super) struct Connections {
    connection: Connection,
    pub(super) admin: Admin,
    port: u16,
}

/// A contender with a separate database on the server.
pub(super) struct Running {
    name: String,
    database: usize,
    script: Vec<[Check; PIPELINE]>,
    sender: Sender,
    measured: usize,
    cpu_s: f64,
    wall_s: f64,
}

/// How its checks reach the server.
enum Sender {
    Script {
        contender: Box<dyn Contender>,
        per_call: usize,
        /// The encoded pipelines.
        encoded: Vec<Pipeline>,
        replies: Replies,
    },
    Store {
        asked: AskedStore,
        admitted: usize,
    },
}

impl Connections {
    /// Connects.
    pub(super) fn to(server: &Server) -> Result<Connections> {
        Ok(Connections {
            connection: Connection::open(server.port())?,
            admin: server.admin()?,
            port: server.port(),
        })
    }

    fn command_ok(&mut self, words: &[&str]) -> Result<()> {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        let reply = self.connection.ask(command(&words))?;
        ensure!(reply == b"+OK\r\n", "the server answers {}", String::from_utf8_lossy(&reply));
        Ok(())
    }
}

impl Running {
    /// Loads the contender's script and encodes everything that it will send.
    pub(super) fn start(
        connections: &mut Connections,
        row: &Row,
        database: usize,
        pipelines: usize,
        seed: u64,
    ) -> Result<Running> {
        let Entrant { mode, per_call, gives_back, .. } = row.entrants[database];
        let keys: Vec<String> = every_key(row.keys.count().into()).flatten().collect();
        let script = script(row.keys, pipelines, gives_back, seed);
        connections.command_ok(&["SELECT", &database.to_string()])?;
        let sender = match mode {
            SendMode::Script(build) => {
                let contender = build(&mut connections.connection, &keys)?;
                let per_call = per_call.unwrap_or(1);
                let encoded = script.iter().map(|checks| encode(&*contender, checks, per_call));
                let encoded = encoded.collect::<Result<_>>()?;
                Sender::Script { contender, per_call, encoded, replies: Replies::default() }
            }
            SendMode::Store { connection_count, tasks } => {
                let asked = AskedStore::open(connections.port, database, (connection_count, tasks), &keys)?;
                Sender::Store { asked, admitted: 0 }
            }
        };
        // Excludes an earlier round and the call that loaded the script.
        connections.command_ok(&["FLUSHDB"])?;
        let name = row.entrants[database].figures_name();
        Ok(Running { name, database, script, sender, measured: 0, cpu_s: 0.0, wall_s: 0.0 })
    }

    /// Sends these pipelines without measuring.
    pub(super) fn warm_up(&mut self, connections: &mut Connections, pipelines: Range<usize>) -> Result<()> {
        connections.command_ok(&["SELECT", &self.database.to_string()])?;
        self.send(connections, pipelines)
    }

    /// Sends these pipelines and adds their cost.
    pub(super) fn measure(&mut self, connections: &mut Connections, pipelines: Range<usize>) -> Result<()> {
        connections.command_ok(&["SELECT", &self.database.to_string()])?;
        self.measured += pipelines.len() * PIPELINE;
        let (cpu_s, started) = (connections.admin.cpu_seconds()?, Instant::now());
        self.send(connections, pipelines)?;
        self.wall_s += started.elapsed().as_secs_f64();
        self.cpu_s += connections.admin.cpu_seconds()? - cpu_s;
        Ok(())
    }

    /// Returns nanoseconds per check, server CPU and wall clock; fails unless everything was admitted.
    pub(super) fn finish(self) -> Result<(f64, f64)> {
        let checks = self.script.as_flattened();
        let admitted = match &self.sender {
            Sender::Script { contender, per_call, replies, .. } => {
                let calls = checks.chunks(*per_call).zip(replies.iter());
                calls.map(|(checks, reply)| contender.admitted(checks, reply)).sum::<Result<usize>>()?
            }
            Sender::Store { admitted, .. } => *admitted,
        };
        ensure!(admitted == checks.len(), "{} admitted {admitted} of {}", self.name, checks.len());
        let per_check = |seconds: f64| seconds * 1e9 / self.measured as f64;
        Ok((per_check(self.cpu_s), per_check(self.wall_s)))
    }

    fn send(&mut self, connections: &mut Connections, pipelines: Range<usize>) -> Result<()> {
        match &mut self.sender {
            Sender::Script { encoded, replies, .. } => {
                let mut pipelines = encoded[pipelines].iter();
                pipelines.try_for_each(|pipeline| connections.connection.exchange(pipeline, replies))
            }
            Sender::Store { asked, admitted } => {
                *admitted += asked.send(&self.script[pipelines])?;
                Ok(())
            }
        }
    }
}

fn encode(contender: &dyn Contender, checks: &[Check], per_call: usize) -> Result<Pipeline> {
    let calls = checks.chunks(per_call).map(|checks| contender.call(checks));
    let calls = calls.collect::<Result<Vec<Vec<u8>>>>()?;
    Ok(Pipeline { bytes: calls.concat(), calls: calls.len() })
}
