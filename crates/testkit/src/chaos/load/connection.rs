//! One connection of the load: sends what is due, and reads the answers in order.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{Receiver, UnboundedSender};
use tokio::time::{sleep, sleep_until};

use super::super::traffic::{Answer, Call, Check};
use super::{DueCheck, Target, is_repeated};
use crate::redis::Value;
use crate::servers::random::Random;

/// Pause before another attempt to connect.
const PAUSE: Duration = Duration::from_millis(5);
/// How long the last answers may take.
const LAST_ANSWERS: Duration = Duration::from_secs(5);
/// Commands that are sent at once.
const BATCH: usize = 64;

pub(super) struct Connection {
    pub(super) targets: Arc<Vec<Target>>,
    pub(super) server: usize,
    pub(super) seed: u64,
    pub(super) checks: Receiver<DueCheck>,
    pub(super) is_up: Arc<AtomicBool>,
    pub(super) is_over: Arc<AtomicBool>,
    pub(super) repeat: UnboundedSender<Check>,
}

/// A check without an answer yet.
struct Sent {
    due_check: DueCheck,
    at: Instant,
}

/// The state of one TCP connection.
struct Exchange {
    life: u32,
    sent: VecDeque<Sent>,
    calls: Vec<Call>,
    random: Random,
}

impl Connection {
    /// Connects again until the load is over.
    pub(super) async fn run(mut self) -> Vec<Call> {
        let mut calls = Vec::new();
        let mut rounds = 0;
        while !self.is_over.load(Ordering::SeqCst) {
            let stream = match self.targets[self.server].get() {
                Some((address, life)) => TcpStream::connect(address).await.ok().map(|stream| (stream, life)),
                None => None,
            };
            let Some((stream, life)) = stream else {
                sleep(PAUSE).await;
                continue;
            };
            rounds += 1;
            let random = Random::new(self.seed ^ (self.server as u64) << 32 ^ rounds);
            let mut exchange = Exchange { life, sent: VecDeque::new(), calls: Vec::new(), random };
            self.is_up.store(true, Ordering::SeqCst);
            self.serve(stream, &mut exchange).await;
            self.is_up.store(false, Ordering::SeqCst);
            for sent in std::mem::take(&mut exchange.sent) {
                self.record(&mut exchange, sent, Answer::Lost);
            }
            while let Ok(due_check) = self.checks.try_recv() {
                let sent = Sent { due_check, at: Instant::now() };
                self.record(&mut exchange, sent, Answer::Unsent);
            }
            calls.append(&mut exchange.calls);
        }
        calls
    }

    /// Sends and reads until the connection or the load ends.
    async fn serve(&mut self, stream: TcpStream, exchange: &mut Exchange) {
        // Without it, the load would wait for its own packets.
        if stream.set_nodelay(true).is_err() {
            return;
        }
        let (mut reader, mut writer) = stream.into_split();
        let (mut input, mut output) = (Vec::with_capacity(16 << 10), Vec::new());
        let mut ends_at = None;
        loop {
            if ends_at.is_some() && exchange.sent.is_empty() {
                return;
            }
            let last = ends_at.unwrap_or_else(|| Instant::now() + LAST_ANSWERS);
            tokio::select! {
                read = reader.read_buf(&mut input) => {
                    if !matches!(read, Ok(1..)) || !self.read(&mut input, exchange) {
                        return;
                    }
                }
                check = self.checks.recv(), if ends_at.is_none() => {
                    let Some(check) = check else {
                        ends_at = Some(Instant::now() + LAST_ANSWERS);
                        continue;
                    };
                    output.clear();
                    self.write(check, &mut output, exchange);
                    while exchange.sent.len() < BATCH
                        && let Ok(check) = self.checks.try_recv()
                    {
                        self.write(check, &mut output, exchange);
                    }
                    if writer.write_all(&output).await.is_err() {
                        return;
                    }
                }
                () = sleep_until(last.into()), if ends_at.is_some() => return,
            }
        }
    }

    fn write(&self, due_check: DueCheck, output: &mut Vec<u8>, exchange: &mut Exchange) {
        due_check.check.write(self.seed, output);
        exchange.sent.push_back(Sent { due_check, at: Instant::now() });
    }

    /// Reads all complete replies. Returns false if the bytes are no replies.
    fn read(&self, input: &mut Vec<u8>, exchange: &mut Exchange) -> bool {
        let mut taken = 0;
        loop {
            match Value::parse(&input[taken..]) {
                Ok(Some((reply, length))) => {
                    taken += length;
                    let Some(sent) = exchange.sent.pop_front() else { return false };
                    let answer = Answer::of(&reply);
                    if answer == Answer::Error {
                        self.targets[self.server].error.get_or_init(|| format!("{reply:?}"));
                    }
                    self.record(exchange, sent, answer);
                }
                Ok(None) => break,
                Err(_) => return false,
            }
        }
        input.drain(..taken);
        true
    }

    fn record(&self, exchange: &mut Exchange, sent: Sent, answer: Answer) {
        let Sent { due_check: DueCheck { check, due }, at } = sent;
        self.targets[self.server].count(answer);
        if is_repeated(&check, answer, &mut exchange.random) {
            let again = Check { is_repetition: true, ..check };
            // The queue is closed when the load is over. Then nothing is repeated.
            if self.repeat.send(again).is_err() {
                self.is_over.store(true, Ordering::SeqCst);
            }
        }
        exchange.calls.push(Call {
            check,
            server: self.server as u32,
            life: exchange.life,
            due,
            sent: at,
            done: Instant::now(),
            answer,
        });
    }
}
