//! A constant load over one RESP connection, with calls in pipelines.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

/// How often calls are sent.
const TICK: Duration = Duration::from_millis(10);
const TICKS_PER_SECOND: u32 = 100;
/// Calls in one pipeline while subjects are charged first.
const PIPELINE: u32 = 500;

/// Calls from another thread until they are stopped.
pub(super) struct Load {
    stopped: Arc<AtomicBool>,
    thread: JoinHandle<Result<f64>>,
}

impl Load {
    /// Sends `rate` checks per second, each for a random subject.
    pub(super) fn start(address: SocketAddr, rate: u32, subjects: u32, rules: usize) -> Load {
        let stopped = Arc::<AtomicBool>::default();
        let until = Arc::clone(&stopped);
        let thread = spawn(move || {
            let mut connection = Connection::open(address)?;
            let (mut random, mut sent) = (0x9e37_79b9_7f4a_7c15_u64, 0_u64);
            let began = Instant::now();
            let mut next = began;
            while !until.load(Ordering::Relaxed) {
                let calls: Vec<u32> =
                    (0..rate / TICKS_PER_SECOND).map(|_| draw(&mut random, subjects)).collect();
                connection.check(&calls, rules)?;
                sent += calls.len() as u64;
                next += TICK;
                sleep(next.saturating_duration_since(Instant::now()));
            }
            Ok(sent as f64 / began.elapsed().as_secs_f64())
        });
        Load { stopped, thread }
    }

    /// Returns the calls per second that were answered.
    pub(super) fn stop(self) -> Result<f64> {
        self.stopped.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow!("the load panicked"))?
    }
}

/// Charges every subject once.
pub(super) fn fill(address: SocketAddr, subjects: u32, rules: usize) -> Result<()> {
    let mut connection = Connection::open(address)?;
    for first in (0..subjects).step_by(PIPELINE as usize) {
        let calls: Vec<u32> = (first..subjects.min(first + PIPELINE)).collect();
        connection.check(&calls, rules)?;
    }
    Ok(())
}

/// xorshift: repeatable, and cheap beside a call.
fn draw(state: &mut u64, below: u32) -> u32 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state % u64::from(below)) as u32
}

struct Connection(BufReader<TcpStream>);

impl Connection {
    fn open(address: SocketAddr) -> Result<Connection> {
        let stream = TcpStream::connect(address).context("the server does not accept")?;
        stream.set_nodelay(true)?;
        Ok(Connection(BufReader::new(stream)))
    }

    /// Checks these subjects in one pipeline. All must be decided.
    fn check(&mut self, subjects: &[u32], rules: usize) -> Result<()> {
        let mut calls = String::new();
        for subject in subjects {
            let (user, action) = (format!("u{subject}"), format!("a{}", *subject as usize % rules));
            calls.push_str("*5\r\n$8\r\nTG.CHECK\r\n$4\r\nuser\r\n");
            calls.push_str(&format!(
                "${}\r\n{user}\r\n$6\r\naction\r\n${}\r\n{action}\r\n",
                user.len(),
                action.len()
            ));
        }
        self.0.get_mut().write_all(calls.as_bytes())?;
        for _ in subjects {
            self.skip_value()?;
        }
        Ok(())
    }

    /// Reads one value of the protocol, of any kind but an error.
    fn skip_value(&mut self) -> Result<()> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        let number = || line.get(1..).and_then(|text| text.trim().parse::<i64>().ok());
        match line.chars().next() {
            Some('+' | ':' | '_' | '#' | ',') => Ok(()),
            Some('$') => {
                let length = number().context("no length")?;
                let mut bytes = vec![0; usize::try_from(length + 2).unwrap_or(0)];
                Ok(self.0.read_exact(&mut bytes)?)
            }
            Some('*') => (0..number().context("no count")?).try_for_each(|_| self.skip_value()),
            Some('%') => (0..2 * number().context("no count")?).try_for_each(|_| self.skip_value()),
            _ => bail!("the server answered {line:?}"),
        }
    }
}
