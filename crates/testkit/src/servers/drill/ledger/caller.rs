//! Clients that charge, each its own account, and repeat a check under its id until it is answered.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::drill::DrillError;

/// Clients with an account that is never exhausted.
pub(super) const CALLERS: usize = 6;
/// The number of the client whose limit is reached.
pub(super) const LIMITED: usize = CALLERS;
/// Units that it may use.
pub(super) const LIMIT: u64 = 300;
/// A server that was stopped for longer does not answer this call.
const ANSWER_MAX: Duration = Duration::from_secs(3);
/// A check without an answer for so long after the longest fault is a failure of the drill.
const PATIENCE: Duration = Duration::from_secs(60);
/// The client with a limit sends less, so that it goes on for the whole drill.
const PAUSE: Duration = Duration::from_millis(20);

/// The answers that a client has received.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Answers {
    pub(super) acknowledged: u64,
    pub(super) units: u64,
    pub(super) repeated: u64,
    pub(super) by_policy: u64,
}

/// All clients.
pub(super) struct Callers {
    threads: Vec<JoinHandle<Result<Answers, String>>>,
    shared: Arc<Shared>,
}

struct Shared {
    ports: Vec<u16>,
    patience: Duration,
    ended: AtomicBool,
    acknowledged: AtomicU64,
}

impl Callers {
    /// Starts the clients. No fault is longer than `longest`.
    pub(super) fn start(ports: &[u16], longest: Duration) -> Callers {
        let shared = Arc::new(Shared {
            ports: ports.to_vec(),
            patience: PATIENCE + longest,
            ended: AtomicBool::new(false),
            acknowledged: AtomicU64::new(0),
        });
        let spawn = |number| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || call_until_ended(&shared, number))
        };
        Callers { threads: (0..=CALLERS).map(spawn).collect(), shared }
    }

    /// Waits until some more checks are acknowledged.
    pub(super) fn wait_for_progress(&self) -> Result<(), DrillError> {
        let (begin, deadline) =
            (self.shared.acknowledged.load(Ordering::Relaxed), Instant::now() + self.shared.patience);
        while self.shared.acknowledged.load(Ordering::Relaxed) < begin + 50 {
            if Instant::now() > deadline || self.threads.iter().all(JoinHandle::is_finished) {
                return Err("the clients get no answers".into());
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Ends all clients, each after the answer to its last check.
    pub(super) fn stop(self) -> Result<Vec<Answers>, DrillError> {
        self.shared.ended.store(true, Ordering::Relaxed);
        let ended = self.threads.into_iter().map(|thread| match thread.join() {
            Ok(answers) => answers.map_err(DrillError::from),
            Err(_) => Err("a client has panicked".into()),
        });
        ended.collect()
    }
}

fn call_until_ended(shared: &Shared, number: usize) -> Result<Answers, String> {
    let attributes = json!({ "client": format!("c{number}") });
    let mut answers = Answers::default();
    let mut connection: Option<Connection> = None;
    let mut count = 0_u64;
    while !shared.ended.load(Ordering::Relaxed) {
        count += 1;
        let cost = if number == LIMITED { 1 } else { 1 + count % 7 };
        let body = json!({ "attributes": attributes, "cost": cost, "id": format!("c{number}-{count}") });
        let deadline = Instant::now() + shared.patience;
        let mut is_sent = false;
        loop {
            if Instant::now() > deadline {
                return Err(format!("check c{number}-{count} gets no answer"));
            }
            let connected = match connection.take() {
                Some(connected) => Ok(connected),
                // Another server each time, so that an id is answered by several.
                None => Connection::open(shared.ports[(count as usize + number) % shared.ports.len()]),
            };
            let answer = connected.and_then(|mut connected| {
                answers.repeated += u64::from(std::mem::replace(&mut is_sent, true));
                let answer = connected.check(&body)?;
                connection = Some(connected);
                Ok(answer)
            });
            match answer {
                Ok(Answer::Admitted) => {
                    answers.acknowledged += 1;
                    answers.units += cost;
                    shared.acknowledged.fetch_add(1, Ordering::Relaxed);
                    break;
                }
                // The limit is reached.
                Ok(Answer::Refused) if number == LIMITED => break,
                Ok(Answer::Refused | Answer::ByPolicy) => {
                    answers.by_policy += 1;
                    thread::sleep(Duration::from_millis(5));
                }
                Err(_) => thread::sleep(Duration::from_millis(5)),
            }
        }
        if number == LIMITED {
            thread::sleep(PAUSE);
        }
    }
    Ok(answers)
}

enum Answer {
    Admitted,
    Refused,
    /// The failure policy refused: the store or the ledger did not answer the server.
    ByPolicy,
}

struct Connection(BufReader<TcpStream>);

impl Connection {
    fn open(port: u16) -> io::Result<Connection> {
        let address = ([127, 0, 0, 1], port).into();
        let stream = TcpStream::connect_timeout(&address, ANSWER_MAX)?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        stream.set_write_timeout(Some(ANSWER_MAX))?;
        stream.set_nodelay(true)?;
        Ok(Connection(BufReader::new(stream)))
    }

    fn check(&mut self, body: &Value) -> io::Result<Answer> {
        let body = body.to_string();
        let length = body.len();
        let head = "POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json";
        self.0.get_mut().write_all(format!("{head}\r\ncontent-length: {length}\r\n\r\n{body}").as_bytes())?;
        let mut length = 0;
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let line = line.trim_end().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().map_err(io::Error::other)?;
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body)?;
        let answer: Value = serde_json::from_slice(&body).map_err(io::Error::other)?;
        match (answer["allowed"].as_bool(), answer["source"].as_str()) {
            (Some(true), _) => Ok(Answer::Admitted),
            (Some(false), Some("fallback")) => Ok(Answer::ByPolicy),
            (Some(false), _) => Ok(Answer::Refused),
            // An error that names its cause: the server could not decide.
            (None, _) => Err(io::Error::other(answer.to_string())),
        }
    }
}
