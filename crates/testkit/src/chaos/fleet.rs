//! Three processes of `tollgate serve` that share one store.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::load::Target;
use super::traffic::{LIMIT, rules};
use crate::drill::DrillError;
use crate::serving::Serving;

/// Number of servers.
pub(super) const SERVERS: usize = 3;
/// The hash key of all servers, as bytes and as hexadecimal digits.
pub(super) const HASH_KEY: [u8; 32] = [9; 32];
/// Addresses that are counted separately, under the rule for invented addresses.
pub(super) const ADDRESSES_MAX: u64 = 100_000;
const SAMPLE: Duration = Duration::from_millis(20);

/// What the servers are started with.
#[derive(Clone, Debug)]
pub(super) struct Options {
    pub(super) binary: String,
    pub(super) store: String,
    /// Without it in the URL, so that it is not on the command line.
    pub(super) password: Option<String>,
    pub(super) deadline: Duration,
    /// Environment variables of the first server.
    pub(super) first: Vec<(String, String)>,
}

/// The servers. Dropping it kills them.
pub(super) struct Fleet {
    options: Options,
    folder: TempDir,
    servers: Vec<Option<Serving>>,
    pub(super) targets: Arc<Vec<Target>>,
    memory: Arc<Mutex<Memory>>,
    is_over: Arc<AtomicBool>,
    sampler: Option<JoinHandle<()>>,
}

/// Memory of one process, in bytes.
#[derive(Clone, Copy, Debug)]
struct Sample {
    process: u32,
    /// At the begin of the fault, and the most since.
    first: u64,
    most: u64,
}

/// Memory of the processes that live since the begin of the fault.
#[derive(Debug, Default)]
struct Memory {
    samples: Vec<Sample>,
}

impl Fleet {
    pub(super) fn start(options: Options) -> Result<Fleet, DrillError> {
        let folder = tempfile::tempdir()?;
        let hexadecimal: String = HASH_KEY.iter().map(|byte| format!("{byte:02x}")).collect();
        fs::write(folder.path().join("key"), hexadecimal)?;
        fs::write(folder.path().join("rules.yaml"), rules(LIMIT, ADDRESSES_MAX))?;
        let (memory, is_over) = (Arc::<Mutex<Memory>>::default(), Arc::<AtomicBool>::default());
        let (sampled, ended) = (Arc::clone(&memory), Arc::clone(&is_over));
        let sampler = thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                thread::sleep(SAMPLE);
                lock(&sampled).sample();
            }
        });
        let targets = Arc::new((0..SERVERS).map(|_| Target::default()).collect());
        let mut fleet = Fleet {
            options,
            folder,
            servers: (0..SERVERS).map(|_| None).collect(),
            targets,
            memory,
            is_over,
            sampler: Some(sampler),
        };
        (0..SERVERS).for_each(|server| fleet.launch(server));
        Ok(fleet)
    }

    /// Starts a process of this server.
    pub(super) fn launch(&mut self, server: usize) {
        let path = |name: &str| self.folder.path().join(name).display().to_string();
        let (rules, key) = (path("rules.yaml"), path("key"));
        let deadline = format!("{}ms", self.options.deadline.as_millis());
        let arguments = [
            ["--rules", rules.as_str()],
            ["--store", &self.options.store],
            ["--hash-key-file", &key],
            ["--store-deadline", &deadline],
            ["--grpc", "127.0.0.1:0"],
            ["--threads", "1"],
            ["--in-flight-max-per-caller", "8192"],
        ];
        let mut environment = if server == 0 { self.options.first.clone() } else { Vec::new() };
        let password = self.options.password.clone();
        environment.extend(password.map(|password| ("TOLLGATE_STORE_PASSWORD".to_owned(), password)));
        let serving = Serving::start_in(&self.options.binary, &arguments.concat(), &environment);
        self.targets[server].set(Some(serving.resp));
        self.servers[server] = Some(serving);
    }

    pub(super) fn server(&mut self, server: usize) -> Result<&mut Serving, DrillError> {
        self.servers[server].as_mut().ok_or_else(|| "the server was killed".into())
    }

    /// Kills a server like the kernel does when memory is short.
    pub(super) fn kill9(&mut self, server: usize) -> Result<(), DrillError> {
        self.targets[server].set(None);
        let mut serving = self.servers[server].take().ok_or("the server was killed")?;
        serving.signal("KILL");
        serving.exit_code();
        Ok(())
    }

    /// Ends a server in order. Returns its exit code.
    pub(super) fn terminate(&mut self, server: usize) -> Result<Option<i32>, DrillError> {
        let mut serving = self.servers[server].take().ok_or("the server was killed")?;
        serving.signal("TERM");
        // Its connections are closed by the server.
        self.targets[server].set(None);
        Ok(serving.exit_code())
    }

    /// Returns the file with the rules of all servers.
    pub(super) fn rules_file(&self) -> PathBuf {
        self.folder.path().join("rules.yaml")
    }

    /// Returns how many log lines of all servers have this event.
    pub(super) fn events(&self, event: &str) -> usize {
        let event = format!("\"event\":\"{event}\"");
        let logs = self.servers.iter().flatten().map(Serving::text);
        logs.map(|log| log.lines().filter(|line| line.contains(&event)).count()).sum()
    }

    /// Begins to measure the growth of memory.
    pub(super) fn measure_memory(&self) {
        let processes = self.servers.iter().flatten().map(Serving::process_id);
        let sample = |process| resident(process).map(|bytes| Sample { process, first: bytes, most: bytes });
        lock(&self.memory).samples = processes.filter_map(sample).collect();
    }

    /// Returns the largest growth of any server since then, in bytes.
    pub(super) fn grown(&self) -> u64 {
        let memory = lock(&self.memory);
        memory.samples.iter().map(|sample| sample.most - sample.first).max().unwrap_or(0)
    }

    /// Returns how many answers the store, and failure policies, have given.
    pub(super) fn answers(&self) -> (u64, u64) {
        let sum = |of: fn(&Target) -> u64| self.targets.iter().map(of).sum();
        (
            sum(|target| target.by_store.load(Ordering::SeqCst)),
            sum(|target| target.by_policy.load(Ordering::SeqCst)),
        )
    }

    /// Waits until the store has answered `count` more checks of each server that runs.
    pub(super) fn wait_for_store(&self, count: u64, within: Duration) -> Result<(), DrillError> {
        let answered = |target: &Target| target.by_store.load(Ordering::SeqCst);
        let before: Vec<u64> = self.targets.iter().map(answered).collect();
        let until = Instant::now() + within;
        let is_back = |server: usize| {
            self.servers[server].is_none() || answered(&self.targets[server]) >= before[server] + count
        };
        while !(0..SERVERS).all(is_back) {
            if Instant::now() > until {
                return Err(format!("the store did not answer every server within {within:?}").into());
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(Err(_)) = self.sampler.take().map(JoinHandle::join) {
            eprintln!("the sampler of memory panicked");
        }
    }
}

impl Memory {
    fn sample(&mut self) {
        for sample in &mut self.samples {
            if let Some(bytes) = resident(sample.process) {
                sample.most = sample.most.max(bytes);
            }
        }
    }
}

/// Returns the resident memory of a process in bytes, or `None` if it has exited.
fn resident(process: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().ok()?;
    Some(kib * 1024)
}

fn lock(memory: &Mutex<Memory>) -> std::sync::MutexGuard<'_, Memory> {
    memory.lock().unwrap_or_else(PoisonError::into_inner)
}
