//! One caller floods a server whose line to Redis is slow, while other callers send a few checks.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::DrillError;
use super::rate_limit_client::{RateLimitAnswer, RateLimitClient};
use crate::fault_proxy::{FaultProxy, Faults, Line};
use crate::redis::admin::resp::{Value, command};
use crate::redis::{Flavour, Server};
use crate::serving::{Serving, create_token};

/// Admissions of each bystander.
pub const BYSTANDER_LIMIT: u64 = 2;
const BYSTANDERS: usize = 8;
/// Pause of a bystander after each answer.
const PAUSE: Duration = Duration::from_millis(20);
/// Checks that the blaster has in flight.
const BLASTER_IN_FLIGHT: usize = 2_048;
/// Checks in flight on one connection of the blaster over RESP and gRPC.
const PIPELINE: usize = 128;
/// A rule for each caller. Both fail open.
const RULES: &str = "version: 1
rules:
  - { id: two, match: { tenant: bystander }, per: user, limit: { fixed-window: 2/30d }, on_failure: open }
  - { id: many, match: { tenant: blaster }, per: user, limit: { fixed-window: 1000000/30d }, on_failure: open }
";
const KEY: &str = "6a4c1f0d9e8b7a695847362514039281706f5e4d3c2b1a0918f7e6d5c4b3a291";

/// The transport of all callers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// One check in flight per connection.
    Http,
    /// Pipelines of 128 checks.
    Resp,
    /// 128 calls in flight per connection.
    Grpc,
}

impl Transport {
    /// All transports.
    pub const ALL: [Transport; 3] = [Transport::Http, Transport::Resp, Transport::Grpc];
}

/// The store of a blast.
#[derive(Clone, Copy, Debug)]
pub struct SlowStore {
    /// Bytes per second of the line to Redis, in each direction.
    pub bytes_per_sec: u32,
    /// The deadline of a call.
    pub deadline: Duration,
}

/// The figures of a blast.
#[derive(Clone, Copy, Debug)]
pub struct Blast {
    /// The answers to the blaster.
    pub blaster: Answers,
    /// The answers to all bystanders.
    pub bystanders: Answers,
    /// Admissions of bystanders beyond their limits.
    pub excess: u64,
    /// The slowest answer to a bystander.
    pub slowest: Duration,
}

/// Numbers of answers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Answers {
    /// Allowed by the store.
    pub admitted: u64,
    /// Refused by the store.
    pub refused: u64,
    /// Answered by a failure policy.
    pub by_policy: u64,
    /// Refused because the caller had too many checks in flight.
    pub overloaded: u64,
}

impl fmt::Display for Blast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Blast { blaster, bystanders, excess, slowest } = self;
        let slowest = slowest.as_millis();
        write!(f, "excess {excess}; bystanders {bystanders}, slowest {slowest} ms; blaster {blaster}")
    }
}

impl fmt::Display for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Answers { admitted, refused, by_policy, overloaded } = self;
        write!(f, "{admitted} admitted, {refused} refused, {by_policy} by policy, {overloaded} overloaded")
    }
}

impl Blast {
    /// Whether every bystander got its limit from the store, and nothing else decided.
    pub fn left_bystanders_alone(&self) -> bool {
        let limits = BYSTANDERS as u64 * BYSTANDER_LIMIT;
        let Answers { admitted, refused, by_policy, overloaded } = self.bystanders;
        self.excess == 0 && (admitted, by_policy, overloaded) == (limits, 0, 0) && refused > 0
    }
}

/// One answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Answer {
    Admitted,
    Refused,
    ByPolicy,
    Overloaded,
}

#[derive(Default)]
struct Tally([AtomicU64; 4]);

impl Tally {
    fn add(&self, answer: Answer) {
        self.0[answer as usize].fetch_add(1, Ordering::Relaxed);
    }

    fn answers(&self) -> Answers {
        let count = |answer: Answer| self.0[answer as usize].load(Ordering::Relaxed);
        Answers {
            admitted: count(Answer::Admitted),
            refused: count(Answer::Refused),
            by_policy: count(Answer::ByPolicy),
            overloaded: count(Answer::Overloaded),
        }
    }
}

/// Starts `binary serve` on a slow line to Redis, and floods it for this long.
pub fn blast(
    runtime: &Runtime,
    binary: &str,
    transport: Transport,
    store: SlowStore,
    time: Duration,
) -> Result<Blast, DrillError> {
    let redis = Server::start(Flavour::Redis70)?;
    let proxy = FaultProxy::start(redis.port(), 1)?;
    let (blaster, bystander) = (create_token(binary, "check"), create_token(binary, "check,read"));
    let write = |name: &str, text: &str| -> io::Result<String> {
        let path = redis.folder().join(name);
        std::fs::write(&path, text)?;
        Ok(path.display().to_string())
    };
    let config = write("tollgate.yaml", &format!("tokens:\n{}\n{}\n", blaster.line, bystander.line))?;
    let (rules, key) = (write("rules.yaml", RULES)?, write("key", KEY)?);
    let (url, deadline) = (proxy.url(), format!("{}ms", store.deadline.as_millis()));
    let server = Serving::start(
        binary,
        &[
            ["--config", &config],
            ["--rules", &rules],
            ["--store", &url],
            ["--hash-key-file", &key],
            ["--store-deadline", &deadline],
            ["--connections-max", "16384"],
            ["--connections-max-per-address", "16384"],
            ["--threads", "2"],
            ["--grpc", "127.0.0.1:0"],
        ]
        .concat(),
    );
    let address = match transport {
        Transport::Http => server.http,
        Transport::Resp => server.resp,
        Transport::Grpc => server.grpc.ok_or("the server has no gRPC port")?,
    };
    let caller = |tenant, token: &str| Caller { transport, address, tenant, token: token.to_owned() };
    let (blaster, bystander) = (caller("blaster", &blaster.token), caller("bystander", &bystander.token));
    runtime.block_on(async {
        // Redis gets the script while the line is fast.
        for caller in [&blaster, &bystander] {
            caller.connect().await?.check("first").await?;
        }
        let line = Line { bytes_per_sec: NonZeroU32::new(store.bytes_per_sec), ..Line::default() };
        proxy.set(Faults { requests: line, replies: line, ..Faults::default() })?;
        flood(blaster, bystander, time).await
    })
}

async fn flood(blaster: Caller, bystander: Caller, time: Duration) -> Result<Blast, DrillError> {
    let is_over = Arc::new(AtomicBool::new(false));
    let flooded = Arc::<Tally>::default();
    let mut floods = JoinSet::new();
    let connections = match blaster.transport {
        Transport::Http => BLASTER_IN_FLIGHT,
        Transport::Resp | Transport::Grpc => BLASTER_IN_FLIGHT / PIPELINE,
    };
    for number in 0..connections {
        let mut client = blaster.connect().await?;
        let (is_over, tally) = (Arc::clone(&is_over), Arc::clone(&flooded));
        floods.spawn(async move {
            let mut round = 0_u64;
            while !is_over.load(Ordering::Relaxed) {
                let pipeline = BLASTER_IN_FLIGHT / connections;
                let users = (0..pipeline).map(|index| format!("{number}-{round}-{index}"));
                client.send(&users.collect::<Vec<_>>()).await?;
                for _ in 0..pipeline {
                    tally.add(client.answer().await?);
                }
                round += 1;
            }
            Ok::<(), DrillError>(())
        });
    }
    let mut waits = JoinSet::new();
    for number in 0..BYSTANDERS {
        let mut client = bystander.connect().await?;
        let is_over = Arc::clone(&is_over);
        waits.spawn(async move {
            let (tally, mut slowest) = (Tally::default(), Duration::ZERO);
            while !is_over.load(Ordering::Relaxed) {
                let sent = Instant::now();
                tally.add(client.check(&format!("user-{number}")).await?);
                slowest = slowest.max(sent.elapsed());
                sleep(PAUSE).await;
            }
            Ok::<_, DrillError>((tally.answers(), slowest))
        });
    }
    sleep(time).await;
    is_over.store(true, Ordering::Relaxed);
    let (mut bystanders, mut excess, mut slowest) = (Answers::default(), 0, Duration::ZERO);
    while let Some(ended) = waits.join_next().await {
        let (answers, longest) = ended??;
        excess += (answers.admitted + answers.by_policy).saturating_sub(BYSTANDER_LIMIT);
        slowest = slowest.max(longest);
        bystanders.admitted += answers.admitted;
        bystanders.refused += answers.refused;
        bystanders.by_policy += answers.by_policy;
        bystanders.overloaded += answers.overloaded;
    }
    while let Some(ended) = floods.join_next().await {
        ended??;
    }
    Ok(Blast { blaster: flooded.answers(), bystanders, excess, slowest })
}

/// A caller with its own token.
#[derive(Clone)]
struct Caller {
    transport: Transport,
    address: SocketAddr,
    tenant: &'static str,
    token: String,
}

impl Caller {
    async fn connect(&self) -> Result<Client, DrillError> {
        let connection = match self.transport {
            Transport::Grpc => Connection::Grpc(RateLimitClient::connect(self.address, &self.token).await?),
            Transport::Http | Transport::Resp => {
                let stream = TcpStream::connect(self.address).await?;
                stream.set_nodelay(true)?;
                let mut stream = ByteStream { stream, input: Vec::new() };
                if self.transport == Transport::Resp {
                    stream.stream.write_all(&command(&[b"AUTH", self.token.as_bytes()])).await?;
                    stream.reply().await?;
                    Connection::Resp(stream)
                } else {
                    Connection::Http(stream)
                }
            }
        };
        Ok(Client { caller: self.clone(), connection })
    }
}

/// A client of a caller.
struct Client {
    caller: Caller,
    connection: Connection,
}

enum Connection {
    Http(ByteStream),
    Resp(ByteStream),
    Grpc(RateLimitClient),
}

struct ByteStream {
    stream: TcpStream,
    /// Bytes that were received and not read yet.
    input: Vec<u8>,
}

impl Client {
    /// Sends one check for a user, and waits for the answer.
    async fn check(&mut self, user: &str) -> Result<Answer, DrillError> {
        self.send(&[user.to_owned()]).await?;
        self.answer().await
    }

    /// Sends a check for each user at once.
    async fn send(&mut self, users: &[String]) -> io::Result<()> {
        let Caller { tenant, token, .. } = &self.caller;
        let mut bytes = Vec::new();
        for user in users {
            match &mut self.connection {
                Connection::Http(_) => {
                    let body = format!(r#"{{"attributes":{{"tenant":"{tenant}","user":"{user}"}}}}"#);
                    let head = format!(
                        "POST /v1/check HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\
                         content-type: application/json\r\ncontent-length: {}\r\n\r\n",
                        body.len()
                    );
                    bytes.extend_from_slice(head.as_bytes());
                    bytes.extend_from_slice(body.as_bytes());
                }
                Connection::Resp(_) => {
                    let words = ["TG.CHECK", "tenant", tenant, "user", user];
                    bytes.extend(command(&words.map(str::as_bytes)));
                }
                Connection::Grpc(client) => client.send(&[("tenant", tenant), ("user", user)]),
            }
        }
        match &mut self.connection {
            Connection::Http(stream) | Connection::Resp(stream) => stream.stream.write_all(&bytes).await,
            Connection::Grpc(_) => Ok(()),
        }
    }

    async fn answer(&mut self) -> Result<Answer, DrillError> {
        match &mut self.connection {
            Connection::Http(stream) => stream.response().await,
            Connection::Resp(stream) => stream.reply().await.and_then(|reply| answer_in_reply(&reply)),
            Connection::Grpc(client) => client.answer().await.and_then(|answer| answer_of_service(&answer)),
        }
    }
}

impl ByteStream {
    /// Waits for the next RESP reply.
    async fn reply(&mut self) -> Result<Value, DrillError> {
        loop {
            if let Some((value, len)) = Value::parse(&self.input).map_err(|error| format!("{error:?}"))? {
                self.input.drain(..len);
                return Ok(value);
            }
            self.read_more().await?;
        }
    }

    /// Waits for the next HTTP response.
    async fn response(&mut self) -> Result<Answer, DrillError> {
        loop {
            if let Some(head) = self.input.windows(4).position(|four| four == b"\r\n\r\n") {
                let text = String::from_utf8_lossy(&self.input[..head]).to_ascii_lowercase();
                let length = text.lines().find_map(|line| line.strip_prefix("content-length: "));
                let length: usize = length.ok_or("a response without a length")?.trim().parse()?;
                let end = head + 4 + length;
                if self.input.len() >= end {
                    let body = String::from_utf8_lossy(&self.input[head + 4..end]).into_owned();
                    self.input.drain(..end);
                    return answer_in_body(&body);
                }
            }
            self.read_more().await?;
        }
    }

    async fn read_more(&mut self) -> Result<(), DrillError> {
        match self.stream.read_buf(&mut self.input).await? {
            0 => Err("the server closed the connection".into()),
            _ => Ok(()),
        }
    }
}

fn answer_in_body(body: &str) -> Result<Answer, DrillError> {
    if body.contains(r#""code":"too-many-in-flight""#) {
        return Ok(Answer::Overloaded);
    }
    // A remembered refusal repeats what the store said.
    let by_store = [r#""source":"store""#, r#""source":"memory""#].iter().any(|source| body.contains(source));
    decided(by_store, body.contains(r#""allowed":true"#), &body)
}

fn answer_in_reply(reply: &Value) -> Result<Answer, DrillError> {
    match reply {
        Value::Error(text) if text.starts_with("OVERLOADED") => Ok(Answer::Overloaded),
        Value::Array(fields) => {
            let is = |name: &[u8], value: &Value| {
                fields.chunks(2).any(|pair| pair == [Value::Bulk(name.to_vec()), value.clone()])
            };
            let from = |source: &[u8]| is(b"source", &Value::Bulk(source.to_vec()));
            // A remembered refusal repeats what the store said.
            let by_store = from(b"store") || from(b"memory");
            decided(by_store, is(b"allowed", &Value::Integer(1)), reply)
        }
        other => Err(format!("unexpected reply {other:?}").into()),
    }
}

fn answer_of_service(answer: &RateLimitAnswer) -> Result<Answer, DrillError> {
    match &answer.reason {
        Some(reason) if reason.starts_with("too many requests of this caller") => Ok(Answer::Overloaded),
        Some(_) => Err(format!("unexpected answer {answer:?}").into()),
        None => decided(!answer.by_policy, answer.allowed, answer),
    }
}

fn decided(by_store: bool, allowed: bool, answer: &dyn fmt::Debug) -> Result<Answer, DrillError> {
    match (by_store, allowed) {
        (true, true) => Ok(Answer::Admitted),
        (true, false) => Ok(Answer::Refused),
        // The rules fail open.
        (false, true) => Ok(Answer::ByPolicy),
        (false, false) => Err(format!("unexpected answer {answer:?}").into()),
    }
}
