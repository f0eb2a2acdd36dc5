//! The processes of a drill: servers on fixed ports, their store, and the database of the ledger.

use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use super::caller::{CALLERS, LIMIT, LIMITED};
use super::fault::SmallDisk;
use super::{LedgerDrill, LedgerFault, LedgerFigures};
use crate::drill::DrillError;
use crate::postgres::Postgres;
use crate::random::Random;
use crate::redis::{Cluster, Flavour, SentinelSet, Server};
use crate::servers::ports;

const KEY: &str = "6a4c1f0d9e8b7a695847362514039281706f5e4d3c2b1a0918f7e6d5c4b3a291";
/// How long a server or database may take until it answers again.
const BACK_WITHIN: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(10);
/// One fault in this number kills a primary, because a failover takes seconds.
const PRIMARY_ONE_IN: u64 = 40;

/// Where the state of the gate and the ledger are.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LedgerPlace {
    /// The memory of one server, and SQLite.
    MemorySqlite,
    /// One Redis, one server and SQLite.
    RedisSqlite,
    /// One Redis, two servers and PostgreSQL.
    RedisPostgres,
    /// A set with sentinels, two servers and PostgreSQL.
    SentinelPostgres,
    /// A cluster, two servers and PostgreSQL.
    ClusterPostgres,
}

impl LedgerPlace {
    /// All places.
    pub const ALL: [LedgerPlace; 5] = [
        LedgerPlace::MemorySqlite,
        LedgerPlace::RedisSqlite,
        LedgerPlace::RedisPostgres,
        LedgerPlace::SentinelPostgres,
        LedgerPlace::ClusterPostgres,
    ];

    /// Whether the state of the gate survives everything that a drill kills.
    pub const fn keeps_state(self) -> bool {
        matches!(self, LedgerPlace::RedisSqlite | LedgerPlace::RedisPostgres)
    }

    const fn has_postgres(self) -> bool {
        !matches!(self, LedgerPlace::MemorySqlite | LedgerPlace::RedisSqlite)
    }
}

impl fmt::Display for LedgerPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            LedgerPlace::MemorySqlite => "memory+SQLite",
            LedgerPlace::RedisSqlite => "Redis+SQLite",
            LedgerPlace::RedisPostgres => "Redis+PostgreSQL",
            LedgerPlace::SentinelPostgres => "Sentinel+PostgreSQL",
            LedgerPlace::ClusterPostgres => "Cluster+PostgreSQL",
        })
    }
}

enum Store {
    Memory,
    One(Server),
    Sentinel(SentinelSet),
    Cluster(Cluster),
}

/// All processes.
pub(super) struct Scene {
    binary: String,
    servers: Vec<Node>,
    store: Store,
    pub(super) postgres: Option<Postgres>,
    /// Unmounted after the servers have gone.
    #[expect(dead_code, reason = "held for its end")]
    small: Option<SmallDisk>,
    pub(super) folder: TempDir,
}

/// A server on a fixed port. Its process may be dead.
struct Node {
    port: u16,
    journal: PathBuf,
    process: Option<Child>,
}

/// One account for each client, so that acknowledgements and entries can be compared one by one.
fn rules() -> String {
    let modes =
        ["{}", "{}", "{ name: client }", "{ wait: true }", "{ detail: totals }", "{ when_down: refuse }"];
    let rule = |client: usize| {
        let (ledger, limit) = match client {
            LIMITED => ("{}", LIMIT),
            client => (modes[client % modes.len()], 1_000_000_000),
        };
        format!(
            "  - {{ id: c{client}, match: {{ client: c{client} }}, per: client, limit: {{ quota: {limit}/year, zone: UTC }}, ledger: {ledger}, \
             on_failure: closed }}\n"
        )
    };
    format!("version: 1\nrules:\n{}", (0..=CALLERS).map(rule).collect::<String>())
}

impl Scene {
    pub(super) fn start(drill: &LedgerDrill) -> Result<Scene, DrillError> {
        let folder = TempDir::with_prefix("tollgate-ledger-")?;
        fs::write(folder.path().join("rules.yaml"), rules())?;
        fs::write(folder.path().join("key"), KEY)?;
        let store = match drill.place {
            LedgerPlace::MemorySqlite => Store::Memory,
            LedgerPlace::RedisSqlite | LedgerPlace::RedisPostgres => {
                Store::One(Server::start(Flavour::Redis70)?)
            }
            LedgerPlace::SentinelPostgres => Store::Sentinel(SentinelSet::start(Flavour::Redis70)?),
            LedgerPlace::ClusterPostgres => Store::Cluster(Cluster::start(Flavour::Redis70)?),
        };
        let postgres = match drill.place.has_postgres() {
            true => Some(Postgres::start()?),
            false => None,
        };
        let count = if postgres.is_some() { 2 } else { 1 };
        let small = match drill.faults.iter().any(|fault| matches!(fault, LedgerFault::DiskFull(_))) {
            true => Some(SmallDisk::mount(folder.path().join("journal-0"))?),
            false => None,
        };
        let node = |number| Node {
            port: ports::next(),
            journal: folder.path().join(format!("journal-{number}")),
            process: None,
        };
        let servers = (0..count).map(node).collect();
        let mut scene = Scene { binary: drill.binary.clone(), servers, store, postgres, small, folder };
        scene.command(&["database", "migrate"])?;
        scene.heal()?;
        Ok(scene)
    }

    /// Returns the ports of all servers.
    pub(super) fn ports(&self) -> Vec<u16> {
        self.servers.iter().map(|server| server.port).collect()
    }

    /// Returns the folder of the first server's journal.
    pub(super) fn journal(&self) -> &Path {
        &self.servers[0].journal
    }

    /// Returns the URL of the database.
    pub(super) fn database(&self) -> String {
        match &self.postgres {
            Some(postgres) => postgres.url("postgres"),
            None => format!("sqlite:{}", self.path("usage.db")),
        }
    }

    pub(super) fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// Runs a command on the database, and returns what it printed.
    pub(super) fn command(&self, arguments: &[&str]) -> Result<String, DrillError> {
        let mut command = Command::new(&self.binary);
        let Output { status, stdout, stderr } =
            command.args(arguments).args(["--database", &self.database()]).stdin(Stdio::null()).output()?;
        match status.success() {
            true => Ok(String::from_utf8(stdout)?),
            false => {
                let printed = String::from_utf8_lossy(&stdout);
                Err(format!("{arguments:?} failed: {printed} {}", String::from_utf8_lossy(&stderr)).into())
            }
        }
    }

    /// Runs a command that prints JSON, whatever its exit code is.
    pub(super) fn json(&self, arguments: &[&str]) -> Result<Value, DrillError> {
        let mut command = Command::new(&self.binary);
        let output = command
            .args(arguments)
            .args(["--database", &self.database(), "--format", "json"])
            .stdin(Stdio::null())
            .output()?;
        serde_json::from_slice(&output.stdout).map_err(|error| {
            let printed = String::from_utf8_lossy(&output.stderr);
            format!("{arguments:?} printed no JSON: {error}: {printed}").into()
        })
    }

    /// Hurts one process at random. A dead one is started again, and may be killed before it is ready.
    pub(super) fn hurt(
        &mut self,
        random: &mut Random,
        figures: &mut LedgerFigures,
    ) -> Result<(), DrillError> {
        self.start_dead()?;
        let dice = random.bits();
        if dice.is_multiple_of(PRIMARY_ONE_IN) && self.kill_primary()? {
            figures.primaries_killed += 1;
            return Ok(());
        }
        let pause = Duration::from_millis(20 + random.bits() % 280);
        match dice / PRIMARY_ONE_IN % 10 {
            0 => {
                let server = &self.servers[random.below(self.servers.len())];
                stop_for(&server.processes(), pause)?;
                figures.stopped += 1;
            }
            1 => {
                if let Some(postgres) = &self.postgres {
                    stop_for(&postgres.processes()?, pause)?;
                    figures.stopped += 1;
                }
            }
            2 | 3 if self.postgres.is_some() => {
                if let Some(postgres) = &mut self.postgres {
                    postgres.kill9()?;
                    thread::sleep(pause);
                    postgres.start_again()?;
                }
                figures.databases_killed += 1;
            }
            _ => {
                let number = random.below(self.servers.len());
                figures.servers_killed += u64::from(self.servers[number].kill9()?);
            }
        }
        Ok(())
    }

    /// Kills the primary of the store, and lets a replica replace it. Returns whether there is one.
    fn kill_primary(&mut self) -> Result<bool, DrillError> {
        match &mut self.store {
            // A lone Redis that is killed has no data. That is another fault.
            Store::Memory | Store::One(_) => return Ok(false),
            Store::Sentinel(set) => {
                let old = set.kill9_primary()?;
                set.wait_promoted(old, BACK_WITHIN)?;
                set.restart(old)?;
                set.wait_settled()?;
            }
            Store::Cluster(cluster) => {
                let old = cluster.primaries().first().copied().ok_or("the cluster has no primary")?;
                let replica = cluster.replica_of(old)?;
                cluster.kill9(old)?;
                cluster.wait_promoted(replica, BACK_WITHIN)?;
                cluster.restart(old)?;
                cluster.wait_settled()?;
            }
        }
        Ok(true)
    }

    /// Starts the servers that are dead, without waiting for them.
    fn start_dead(&mut self) -> Result<(), DrillError> {
        let (binary, database, url) = (self.binary.clone(), self.database(), self.store_url());
        let (rules, key) = (self.path("rules.yaml"), self.path("key"));
        for (number, server) in self.servers.iter_mut().enumerate() {
            let is_dead = match &mut server.process {
                Some(process) => process.try_wait()?.is_some(),
                None => true,
            };
            if !is_dead {
                continue;
            }
            let mut command = Command::new(&binary);
            let http = format!("127.0.0.1:{}", server.port);
            command.args(["serve", "--http", &http, "--resp", "off", "--log-format", "json"]);
            command.args(["--rules", &rules, "--hash-key-file", &key, "--database", &database, "--journal"]);
            command.arg(&server.journal).args(["--request-id-horizon", "30min"]);
            if let Some(url) = &url {
                command.args(["--store", url, "--store-deadline", "1s"]);
            }
            let log = File::options()
                .create(true)
                .append(true)
                .open(self.folder.path().join(format!("server-{number}.log")))?;
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
            server.process = Some(command.spawn()?);
        }
        Ok(())
    }

    fn store_url(&self) -> Option<String> {
        match &self.store {
            Store::Memory => None,
            Store::One(server) => Some(server.url()),
            Store::Sentinel(set) => Some(set.url()),
            Store::Cluster(cluster) => Some(cluster.url()),
        }
    }

    /// Starts what is dead, and waits until every server has posted something to the database.
    pub(super) fn heal(&mut self) -> Result<(), DrillError> {
        let deadline = Instant::now() + BACK_WITHIN;
        loop {
            // A server that was started while the database was away has ended.
            self.start_dead()?;
            if self.servers.iter().all(|server| is_ready(server.port)) {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(format!("a server is not ready:\n{}", self.logs()).into());
            }
            thread::sleep(POLL);
        }
    }

    fn logs(&self) -> String {
        let read = |number| {
            let log = fs::read_to_string(self.folder.path().join(format!("server-{number}.log")));
            let log = log.unwrap_or_default();
            log.lines().rev().take(10).collect::<Vec<_>>().join("\n")
        };
        (0..self.servers.len()).map(read).collect::<Vec<_>>().join("\n---\n")
    }

    /// Ends all servers as an operator does, after they have posted everything.
    pub(super) fn settle(&mut self) -> Result<(), DrillError> {
        self.heal()?;
        for server in &mut self.servers {
            for process in server.processes() {
                kill_process(process, Signal::TERM)?;
            }
            if let Some(mut process) = server.process.take() {
                let status = process.wait()?;
                if !status.success() {
                    return Err(format!("a server ended with {status}:\n{}", self.logs()).into());
                }
            }
        }
        Ok(())
    }
}

impl Node {
    fn processes(&self) -> Vec<Pid> {
        self.process.iter().map(Pid::from_child).collect()
    }

    /// Kills the process. Returns whether there was one.
    fn kill9(&mut self) -> Result<bool, DrillError> {
        let Some(mut process) = self.process.take() else { return Ok(false) };
        let was_alive = process.try_wait()?.is_none();
        process.kill()?;
        process.wait()?;
        Ok(was_alive)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take()
            && let Err(error) = process.kill().and_then(|()| process.wait())
        {
            eprintln!("a server stays behind: {error}");
        }
    }
}

/// Stops processes for a while.
pub(super) fn stop_for(processes: &[Pid], pause: Duration) -> Result<(), DrillError> {
    // One that has just ended needs no pause.
    let send = |signal| processes.iter().filter(|process| kill_process(**process, signal).is_ok()).count();
    send(Signal::STOP);
    thread::sleep(pause);
    send(Signal::CONT);
    Ok(())
}

/// Whether a server is ready and its ledger is up.
fn is_ready(port: u16) -> bool {
    let url = format!("http://127.0.0.1:{port}/readyz");
    let output = Command::new("curl").args(["--silent", "--max-time", "2", &url]).output();
    let answer = output.ok().and_then(|output| serde_json::from_slice::<Value>(&output.stdout).ok());
    answer.is_some_and(|answer| answer["ready"] == true && answer["ledger"]["up"] == true)
}
