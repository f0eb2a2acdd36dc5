//! What the scan of `tollgate doctor` costs checks on the same server.

use std::fmt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tollgate::store::redis::{RedisSettings, RedisStore};
use tollgate_core::algorithm::fixed_window::FixedWindow;
use tollgate_core::{Item, Keyspace, Limit, Operation, Plan, Span, Store, SubjectHasher, Token};

use super::DrillError;
use crate::redis::{Flavour, Server};

/// Keys that one script plants.
const PLANTED: u64 = 1_000;
/// How long the scan runs, and then stands still.
const TURN: Duration = Duration::from_millis(500);
const SUBJECTS: u64 = 10_000;
const RULES: &str = "version: 1\nrules: [{ id: a, per: user, limit: { fixed-window: 3/h } }]\n";
const PLANT: &str = "for i = 1, tonumber(ARGV[3]) do redis.call('SET', ARGV[1] .. string.format('%011d%011d', ARGV[2], i), \
     'twenty-four bytes of it.', 'PX', 36000000) end";

/// Latencies of checks while the scan runs, and while it stands still.
#[derive(Clone, Debug)]
pub struct KeyScan {
    /// Keys in the store.
    pub keys: u64,
    /// Latencies with the scan, sorted.
    pub with: Vec<Duration>,
    /// Latencies without, sorted.
    pub without: Vec<Duration>,
}

/// Plants keys, scans them with `tollgate doctor` at its default rate, and sends checks one after another meanwhile.
///
/// The scan runs and stands still in turns, so that a slow minute of the machine counts for both.
pub fn key_scan(runtime: &Runtime, binary: &str, keys: u64) -> Result<KeyScan, DrillError> {
    let server = Server::start(Flavour::Redis70)?;
    let mut admin = server.admin_within(Duration::from_secs(60))?;
    for number in 0..keys.div_ceil(PLANTED) {
        let (number, planted) = (number.to_string(), PLANTED.to_string());
        let prefix = "tg:1:default:{AAaW32L4l3DTl86dhIZV1r}:a:";
        let words = ["EVAL", PLANT, "0", prefix, &number, &planted];
        admin.command(&words.map(str::as_bytes))?;
    }
    std::fs::write(server.folder().join("rules.yaml"), RULES)?;
    let mut scan = Command::new(std::fs::canonicalize(binary)?);
    scan.args(["doctor", "--rules", "rules.yaml", "--store", &server.url(), "--only", "keys-without-ttl"]);
    scan.args(["--scan-keys", &keys.to_string()]).current_dir(server.folder());
    scan.env("TOLLGATE_HASH_KEY", "11".repeat(32));
    let mut scan = Stopped(scan.stdout(Stdio::null()).spawn()?);
    let mut found = KeyScan { keys, with: Vec::new(), without: Vec::new() };
    runtime.block_on(async {
        let store = RedisSettings::url(&server.url())?.connect().await?;
        let mut number = 0;
        while scan.0.try_wait()?.is_none() {
            for (latencies, signal) in [(&mut found.with, "CONT"), (&mut found.without, "STOP")] {
                scan.signal(signal)?;
                let until = Instant::now() + TURN;
                while Instant::now() < until {
                    number += 1;
                    latencies.push(check(&store, number).await?);
                }
            }
            scan.signal("CONT")?;
        }
        Ok::<(), DrillError>(())
    })?;
    if !scan.0.wait()?.success() {
        return Err("the scan did not find the planted keys in order".into());
    }
    found.with.sort_unstable();
    found.without.sort_unstable();
    Ok(found)
}

/// Charges a subject once, and returns how long that took.
async fn check(store: &RedisStore, number: u64) -> Result<Duration, DrillError> {
    let keyspace = Keyspace::new("other", "a")?;
    let limit = Limit::FixedWindow(FixedWindow::new(1_000_000_000, Span::from_secs(86_400))?);
    let subject = SubjectHasher::new([5; 32]).subject([("user", (number % SUBJECTS).to_string().as_str())]);
    let charge = Operation::Charge { cost: 1, token: Token(u128::from(number)) };
    let mut plan = Plan::new();
    plan.push(Item::new(keyspace.key(subject), limit, charge))?;
    let began = Instant::now();
    store.apply(&plan).await?;
    Ok(began.elapsed())
}

/// The process of the scan. It is killed with the drill.
struct Stopped(Child);

impl Stopped {
    fn signal(&self, name: &str) -> Result<(), DrillError> {
        // It fails if the process has just ended, which the caller notices.
        Command::new("kill").args(["-s", name, &self.0.id().to_string()]).stderr(Stdio::null()).status()?;
        Ok(())
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // It has usually ended.
        drop(self.0.kill().and_then(|()| self.0.wait()));
    }
}

impl KeyScan {
    /// The 99th percentile with the scan, and without.
    pub fn p99(&self) -> (Duration, Duration) {
        let p99 =
            |latencies: &[Duration]| latencies.get(latencies.len() * 99 / 100).copied().unwrap_or_default();
        (p99(&self.with), p99(&self.without))
    }

    /// By which factor the scan moves the 99th percentile.
    pub fn factor(&self) -> f64 {
        let (with, without) = self.p99();
        with.as_secs_f64() / without.as_secs_f64().max(1e-9)
    }
}

impl fmt::Display for KeyScan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (with, without) = self.p99();
        let checks = self.with.len() + self.without.len();
        write!(
            f,
            "{} keys, {checks} checks: p99 {without:.1?} without the scan, {with:.1?} with it, {:.3} times",
            self.keys,
            self.factor()
        )
    }
}
