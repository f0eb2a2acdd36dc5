//! A server process that ends with the measurement.

use std::fs::{self, File};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use super::cpu;

/// The longest time to start listening, and to end.
const TIMEOUT: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(5);

pub(super) struct Process {
    child: Child,
}

impl Process {
    /// Starts the server and waits until it listens on these ports. Its output goes to a file in this folder.
    pub(super) fn start(name: &str, command: &mut Command, ports: &[u16], folder: &Path) -> Result<Process> {
        let log_path = folder.join(format!("{name}.log"));
        let log = File::create(&log_path).with_context(|| format!("cannot write {}", log_path.display()))?;
        // Environment variables of the bench must not configure the server.
        let child = command
            .env_clear()
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        let mut process = Process { child };
        let deadline = Instant::now() + TIMEOUT;
        for &port in ports {
            while TcpStream::connect(("127.0.0.1", port)).is_err() {
                let ended = process.child.try_wait()?;
                if ended.is_some() || Instant::now() > deadline {
                    let text = fs::read_to_string(&log_path).unwrap_or_else(|error| error.to_string());
                    bail!("{name} does not listen on port {port}: {text}");
                }
                thread::sleep(POLL);
            }
        }
        Ok(process)
    }

    /// Returns the CPU time used so far.
    pub(super) fn cpu(&self) -> Result<Duration> {
        cpu::used_by(self.child.id())
    }

    /// Sends SIGTERM: a killed server would leave its children behind.
    fn ask_to_end(&mut self) -> Result<bool> {
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).context("no process")?;
        kill_process(id, Signal::TERM)?;
        let deadline = Instant::now() + TIMEOUT;
        while Instant::now() < deadline {
            if self.child.try_wait()?.is_some() {
                return Ok(true);
            }
            thread::sleep(POLL);
        }
        Ok(false)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.ask_to_end().unwrap_or(false)
            && let Err(error) = self.child.kill().and_then(|()| self.child.wait())
        {
            eprintln!("a server is still running: {error}");
        }
    }
}
