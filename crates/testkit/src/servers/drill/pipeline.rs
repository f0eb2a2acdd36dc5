//! A client with a long pipeline, and a bystander that waits for each answer.
//!
//! The bystander is compared with itself beside the same pipeline on another server of the same machine. So the processors
//! are equally busy, and the difference is the cost of sharing a thread.

use std::fmt;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::{DrillError, median};
use crate::redis::admin::resp::command;
use crate::serving::Serving;

/// Requests that the pipeline sends at once.
const DEPTH: usize = 2_000;
const ROUND: Duration = Duration::from_millis(500);
/// Pause of the bystander after each answer.
const PAUSE: Duration = Duration::from_micros(500);
const RULES: &str = "version: 1\nrules:\n  - { id: a, per: user, limit: { token-bucket: 1000000/s } }\n";

/// The transport of the pipeline and of the bystander.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PipelineTransport {
    /// JSON over HTTP/1.1.
    Http,
    /// The Redis protocol.
    Resp,
}

impl PipelineTransport {
    /// All transports that have pipelines.
    pub const ALL: [PipelineTransport; 2] = [PipelineTransport::Http, PipelineTransport::Resp];
}

/// The latency of a bystander: medians over rounds.
#[derive(Clone, Copy, Debug)]
pub struct Pipelined {
    /// The pipeline runs on another server.
    pub elsewhere: Latency,
    /// The pipeline runs on the bystander's thread.
    pub beside: Latency,
}

/// Percentiles of one round, or medians of those.
#[derive(Clone, Copy, Debug, Default)]
pub struct Latency {
    /// The median.
    pub p50: Duration,
    /// The 99th percentile.
    pub p99: Duration,
    /// The 99.9th percentile.
    pub p999: Duration,
}

impl Pipelined {
    /// Returns how much slower the bystander is beside the pipeline: the larger ratio of the median and the 99th
    /// percentile.
    pub fn slowdown(&self) -> f64 {
        ratio(self.beside.p50, self.elsewhere.p50).max(ratio(self.beside.p99, self.elsewhere.p99))
    }
}

impl fmt::Display for Pipelined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Pipelined { elsewhere, beside } = self;
        let show = |before: Duration, after: Duration| {
            format!("{} -> {} us ({:.1}x)", before.as_micros(), after.as_micros(), ratio(after, before))
        };
        let [p50, p99, p999] = [
            show(elsewhere.p50, beside.p50),
            show(elsewhere.p99, beside.p99),
            show(elsewhere.p999, beside.p999),
        ];
        write!(f, "p50 {p50}, p99 {p99}, p99.9 {p999}")
    }
}

fn ratio(after: Duration, before: Duration) -> f64 {
    after.as_secs_f64() / before.as_secs_f64().max(1e-9)
}

/// Measures a bystander in alternating rounds: with the pipeline on another server, and on its own thread.
pub fn pipeline_beside(
    binary: &str,
    transport: PipelineTransport,
    rounds: usize,
) -> Result<Pipelined, DrillError> {
    let folder = tempfile::tempdir()?;
    let rules = folder.path().join("rules.yaml");
    std::fs::write(&rules, RULES)?;
    let rules = rules.display().to_string();
    let start = || Serving::start(binary, &["--threads", "1", "--rules", &rules]);
    let (server, other) = (start(), start());
    let address = |server: &Serving| match transport {
        PipelineTransport::Http => server.http,
        PipelineTransport::Resp => server.resp,
    };
    let (own, other) = (address(&server), address(&other));
    let (mut elsewhere, mut beside) = (Vec::new(), Vec::new());
    for _ in 0..rounds.max(1) {
        elsewhere.push(round(transport, own, other)?);
        beside.push(round(transport, own, own)?);
    }
    Ok(Pipelined { elsewhere: medians(&elsewhere), beside: medians(&beside) })
}

fn medians(rounds: &[Latency]) -> Latency {
    let of = |part: fn(&Latency) -> Duration| median(rounds.iter().map(part).collect());
    Latency { p50: of(|round| round.p50), p99: of(|round| round.p99), p999: of(|round| round.p999) }
}

fn round(
    transport: PipelineTransport,
    bystander: SocketAddr,
    pipeline: SocketAddr,
) -> Result<Latency, DrillError> {
    let is_over = AtomicBool::new(false);
    let requests = TcpStream::connect(pipeline)?;
    thread::scope(|scope| {
        let replies = scope.spawn(|| while matches!((&requests).read(&mut [0; 64 << 10]), Ok(1..)) {});
        let flood = scope.spawn(|| {
            let chunk = request(transport, "busy").repeat(DEPTH);
            while !is_over.load(Ordering::Relaxed) {
                if (&requests).write_all(&chunk).is_err() {
                    break;
                }
            }
        });
        let measured = round_trips(transport, bystander);
        is_over.store(true, Ordering::Relaxed);
        requests.shutdown(Shutdown::Both)?;
        if replies.join().is_err() || flood.join().is_err() {
            return Err("the pipeline panicked".into());
        }
        measured
    })
}

/// Waits for one answer after another.
fn round_trips(transport: PipelineTransport, address: SocketAddr) -> Result<Latency, DrillError> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let (request, mut reply) = (request(transport, "quiet"), [0; 4_096]);
    let (began, mut times) = (Instant::now(), Vec::new());
    while began.elapsed() < ROUND || times.len() < 10 {
        let sent = Instant::now();
        stream.write_all(&request)?;
        // The server sends each answer at once.
        if stream.read(&mut reply)? == 0 {
            return Err("the server closed the connection".into());
        }
        times.push(sent.elapsed());
        thread::sleep(PAUSE);
    }
    times.sort_unstable();
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize];
    Ok(Latency { p50: at(0.5), p99: at(0.99), p999: at(0.999) })
}

fn request(transport: PipelineTransport, user: &str) -> Vec<u8> {
    match transport {
        PipelineTransport::Resp => command(&[b"CL.THROTTLE", user.as_bytes(), b"1000000", b"1000000", b"1"]),
        PipelineTransport::Http => {
            let body = format!(r#"{{"attributes":{{"user":"{user}"}}}}"#);
            let head = "POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json";
            format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes()
        }
    }
}
