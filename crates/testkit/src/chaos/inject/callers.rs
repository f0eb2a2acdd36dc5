//! Callers that attack the servers, while others go on.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;

use super::{Happened, Scene, really};
use crate::chaos::fleet::{ADDRESSES_MAX, SERVERS};
use crate::chaos::traffic::{Answer, HOSTILE_LIMIT};
use crate::drill::DrillError;
use crate::redis::Value;
use crate::redis::admin::resp::command;
use crate::servers::http2;

/// Connections of the attacker to each server, and the checks that each sends at once.
const FLOODS: u32 = 2;
const PIPELINE: u32 = 128;
/// The window of the rule for invented addresses.
const WINDOW_SECS: u64 = 10;

/// Sockets that send a header byte by byte, per server.
const SLOW: usize = 100;
const DRIP: Duration = Duration::from_millis(500);
const CLOSED_WITHIN: Duration = Duration::from_secs(20);

/// Connections that cancel their requests, per server.
const RESETTING: usize = 5;

/// Checks from invented addresses, each one once.
pub(super) fn hostile(scene: &mut Scene<'_>) -> Result<Happened, DrillError> {
    let count = scene.settings.hostile;
    let addresses: Vec<SocketAddr> =
        (0..SERVERS).map(|server| Ok(scene.fleet.server(server)?.resp)).collect::<Result<_, DrillError>>()?;
    let (next, admitted) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let began = Instant::now();
    let sent = scene.runtime.block_on(async {
        let mut floods = JoinSet::new();
        for address in addresses {
            for _ in 0..FLOODS {
                floods.spawn(flood(address, count, Arc::clone(&next), Arc::clone(&admitted)));
            }
        }
        let mut sent = 0;
        while let Some(flood) = floods.join_next().await {
            sent += flood??;
        }
        Ok::<_, DrillError>(sent)
    })?;
    let took = began.elapsed();
    let admitted = admitted.load(Ordering::Relaxed);
    // One more window than the time has, because it may begin and end within one.
    let windows = took.as_secs() / WINDOW_SECS + 2;
    let most = windows * (ADDRESSES_MAX + HOSTILE_LIMIT);
    let proof =
        format!("{sent} addresses in {} s, {admitted} admitted, at most {most} are counted", took.as_secs());
    if admitted > most {
        return Err(format!("invented addresses got too much: {proof}").into());
    }
    Ok(Happened::now(really(sent >= count, proof)?))
}

/// Sends pipelines until `next` has reached `count`. Returns the number of answers.
async fn flood(
    address: SocketAddr,
    count: u64,
    next: Arc<AtomicU64>,
    admitted: Arc<AtomicU64>,
) -> Result<u64, DrillError> {
    let mut stream = tokio::net::TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (mut input, mut answered) = (Vec::new(), 0);
    loop {
        let first = next.fetch_add(PIPELINE.into(), Ordering::Relaxed);
        if first >= count {
            return Ok(answered);
        }
        let mut output = Vec::new();
        for number in first..first + u64::from(PIPELINE) {
            let [.., a, b, c] = number.to_be_bytes();
            let ip = format!("{}.{a}.{b}.{c}", 11 + (number >> 24));
            output.extend(command(&[b"TG.CHECK", b"class", b"hostile", b"ip", ip.as_bytes()]));
        }
        stream.write_all(&output).await?;
        let mut missing = PIPELINE;
        while missing > 0 {
            if stream.read_buf(&mut input).await? == 0 {
                return Err("the server closed a connection".into());
            }
            let mut taken = 0;
            while let Some((reply, length)) =
                Value::parse(&input[taken..]).map_err(|error| error.to_string())?
            {
                taken += length;
                missing -= 1;
                answered += 1;
                let is_admitted = matches!(Answer::of(&reply), Answer::Store { allowed: true });
                admitted.fetch_add(is_admitted.into(), Ordering::Relaxed);
            }
            input.drain(..taken);
        }
    }
}

/// Sockets that send a header byte by byte. The servers close them.
pub(super) fn slow_headers(scene: &mut Scene<'_>) -> Result<Happened, DrillError> {
    let mut open = Vec::new();
    for server in 0..SERVERS {
        let address = scene.fleet.server(server)?.http;
        for _ in 0..SLOW {
            let mut stream = TcpStream::connect(address)?;
            stream.set_nonblocking(true)?;
            stream.write_all(b"GET /healthz HTTP/1.1\r\nx: ")?;
            open.push(stream);
        }
    }
    let (all, began) = (open.len(), Instant::now());
    while !open.is_empty() && began.elapsed() < CLOSED_WITHIN {
        std::thread::sleep(DRIP);
        open.retain_mut(is_open);
    }
    let closed = all - open.len();
    let proof = format!("{closed} of {all} slow sockets closed after {:.1} s", began.elapsed().as_secs_f64());
    Ok(Happened::now(really(open.is_empty(), proof)?))
}

/// Sends one more byte. Returns whether the server still listens.
fn is_open(stream: &mut TcpStream) -> bool {
    let mut reply = [0; 256];
    let is_sent = stream.write_all(b"x").is_ok();
    match stream.read(&mut reply) {
        // A response, such as 408. The end follows.
        Ok(1..) => true,
        Ok(0) => false,
        Err(error) => is_sent && error.kind() == ErrorKind::WouldBlock,
    }
}

/// HTTP/2 clients that cancel each request at once. The servers disconnect them.
pub(super) fn rapid_reset(scene: &mut Scene<'_>) -> Result<Happened, DrillError> {
    let (mut ended, mut all) = (0, 0);
    for server in 0..SERVERS {
        let address = scene.fleet.server(server)?.grpc.ok_or("no gRPC listener")?;
        for _ in 0..RESETTING {
            all += 1;
            let code = http2::Connection::with_preface(address)?.reset_rapidly()?;
            ended += usize::from(code == Some(http2::ENHANCE_YOUR_CALM));
        }
    }
    let proof = format!("{ended} of {all} connections ended for rapid resets");
    Ok(Happened::now(really(ended == all, proof)?))
}
