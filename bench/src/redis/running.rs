//! A contender in the middle of a round: what it has sent, what came back, and what that cost.

use std::ops::Range;
use std::time::Instant;

use anyhow::{Result, ensure};
use tollgate_testkit::redis::{Admin, Server};

use super::connection::{Connection, Pipeline, Replies};
use super::contender::{Contender, Entrant, Way};
use super::rounds::Row;
use super::script::{Check, PIPELINE, script};
use super::store::AskedStore;
use crate::resp::command;
use crate::script::every_key;

/// Both ways to the server: the one that is measured, and the one that asks how it is.
pub(super) struct Ways {
    connection: Connection,
    pub(super) admin: Admin,
    port: u16,
}

/// A contender with a database of its own on the server, where nobody else's state is.
pub(super) struct Running {
    name: String,
    database: usize,
    script: Vec<[Check; PIPELINE]>,
    sender: Sender,
    measured: usize,
    cpu_s: f64,
    wall_s: f64,
}

/// How its checks get to the server.
enum Sender {
    Script {
        contender: Box<dyn Contender>,
        per_call: usize,
        /// The script, ready to be sent.
        encoded: Vec<Pipeline>,
        replies: Replies,
    },
    Store {
        asked: AskedStore,
        admitted: usize,
    },
}

impl Ways {
    /// Connects.
    pub(super) fn to(server: &Server) -> Result<Ways> {
        Ok(Ways { connection: Connection::open(server.port())?, admin: server.admin()?, port: server.port() })
    }

    fn tell(&mut self, words: &[&str]) -> Result<()> {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        let reply = self.connection.ask(command(&words))?;
        ensure!(reply == b"+OK\r\n", "the server answers {}", String::from_utf8_lossy(&reply));
        Ok(())
    }
}

impl Running {
    /// Loads the contender's script, and encodes everything that it will send.
    pub(super) fn start(
        ways: &mut Ways,
        row: &Row,
        database: usize,
        pipelines: usize,
        seed: u64,
    ) -> Result<Running> {
        let Entrant { way, per_call, gives_back, .. } = row.entrants[database];
        let keys: Vec<String> = every_key(row.keys.count().into()).flatten().collect();
        let script = script(row.keys, pipelines, gives_back, seed);
        ways.tell(&["SELECT", &database.to_string()])?;
        let sender = match way {
            Way::Script(build) => {
                let contender = build(&mut ways.connection, &keys)?;
                let per_call = per_call.unwrap_or(1);
                let encoded = script.iter().map(|checks| encode(&*contender, checks, per_call));
                let encoded = encoded.collect::<Result<_>>()?;
                Sender::Script { contender, per_call, encoded, replies: Replies::default() }
            }
            Way::Store { lanes, tasks } => {
                let asked = AskedStore::open(ways.port, database, (lanes, tasks), &keys)?;
                Sender::Store { asked, admitted: 0 }
            }
        };
        // What an earlier round left, and the call that brought the script.
        ways.tell(&["FLUSHDB"])?;
        let name = row.entrants[database].figures_name();
        Ok(Running { name, database, script, sender, measured: 0, cpu_s: 0.0, wall_s: 0.0 })
    }

    /// Sends these pipelines, unmeasured.
    pub(super) fn warm_up(&mut self, ways: &mut Ways, pipelines: Range<usize>) -> Result<()> {
        ways.tell(&["SELECT", &self.database.to_string()])?;
        self.send(ways, pipelines)
    }

    /// Sends these pipelines, and adds what that costs.
    pub(super) fn measure(&mut self, ways: &mut Ways, pipelines: Range<usize>) -> Result<()> {
        ways.tell(&["SELECT", &self.database.to_string()])?;
        self.measured += pipelines.len() * PIPELINE;
        let (cpu_s, started) = (ways.admin.cpu_seconds()?, Instant::now());
        self.send(ways, pipelines)?;
        self.wall_s += started.elapsed().as_secs_f64();
        self.cpu_s += ways.admin.cpu_seconds()? - cpu_s;
        Ok(())
    }

    /// Nanoseconds per check, of the server's processor and on the wall, if everything was admitted.
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

    fn send(&mut self, ways: &mut Ways, pipelines: Range<usize>) -> Result<()> {
        match &mut self.sender {
            Sender::Script { encoded, replies, .. } => {
                let mut pipelines = encoded[pipelines].iter();
                pipelines.try_for_each(|pipeline| ways.connection.exchange(pipeline, replies))
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
