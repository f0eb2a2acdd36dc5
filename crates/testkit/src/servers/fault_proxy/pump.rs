//! Forwards the bytes of one connection and applies the faults.
//!
//! Each direction has a reading and a writing thread, so that delays do not accumulate: bytes that are read while the
//! writer waits have their own due time.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::connection::{Connection, Shared, shut_down};
use super::faults::{Event, Faults, Line};
use crate::redis::admin::resp::Value;

/// Bytes, and when they may be sent.
struct Piece {
    due: Instant,
    bytes: Vec<u8>,
}

/// What happens to a reply.
enum Fate {
    Passed,
    Lost,
    Cut,
}

#[derive(Clone, Copy)]
enum Direction {
    Requests,
    Replies,
}

/// Returns when both directions have ended.
pub(super) fn run(shared: &Shared, connection: &Connection) {
    let (request_in, request_out) = channel();
    let (reply_in, reply_out) = channel();
    thread::scope(|scope| {
        scope.spawn(move || read_requests(shared, connection, &request_in));
        scope.spawn(move || {
            // When one side closes, the other side sees it after all earlier bytes. A writer that failed has no peer any
            // more, or has already ended the connection.
            if write_requests(shared, connection, &request_out).is_ok() {
                shut_down(&connection.server, Shutdown::Write);
            }
        });
        scope.spawn(move || read_replies(shared, connection, &reply_in));
        let written = write_replies(shared, connection, &reply_out);
        // A half-open connection also hides that the server closed.
        if written.is_ok() && !shared.drops_bytes(connection) {
            shut_down(&connection.client, Shutdown::Write);
        }
    });
}

fn read_requests(shared: &Shared, connection: &Connection, pieces: &Sender<Piece>) {
    for_each_read(&connection.client, |bytes| {
        send(shared, Direction::Requests, pieces, bytes.to_vec());
    });
}

fn read_replies(shared: &Shared, connection: &Connection, pieces: &Sender<Piece>) {
    let (mut waiting, mut is_readable) = (Vec::new(), true);
    let pass = |bytes| {
        shared.count(Event::Reply);
        send(shared, Direction::Replies, pieces, bytes);
    };
    for_each_read(&connection.server, |bytes| {
        waiting.extend_from_slice(bytes);
        while is_readable {
            match Value::parse(&waiting) {
                Ok(Some((_, length))) => pass(waiting.drain(..length).collect()),
                Ok(None) => return,
                Err(_) => {
                    shared.count(Event::Unreadable);
                    is_readable = false;
                }
            }
        }
        pass(std::mem::take(&mut waiting));
    });
}

/// Reads until either side closes the connection.
fn for_each_read(mut socket: &TcpStream, mut act: impl FnMut(&[u8])) {
    let mut chunk = [0; 16 << 10];
    loop {
        match socket.read(&mut chunk) {
            Ok(0) => return,
            Ok(length) => act(&chunk[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

fn send(shared: &Shared, direction: Direction, pieces: &Sender<Piece>, bytes: Vec<u8>) {
    let delay = direction.line(&shared.faults()).delay;
    if delay > Duration::ZERO {
        shared.count(match direction {
            Direction::Requests => Event::DelayedRequest,
            Direction::Replies => Event::DelayedReply,
        });
    }
    // Sending fails only if the writer has closed the connection, which ends the reader.
    if let Err(unsent) = pieces.send(Piece { due: Instant::now() + delay, bytes }) {
        drop(unsent);
    }
}

fn write_requests(shared: &Shared, connection: &Connection, pieces: &Receiver<Piece>) -> io::Result<()> {
    let mut free_at = Instant::now();
    for Piece { due, bytes } in pieces {
        if !connection.gate.open_until(due) {
            return Err(closed());
        }
        if !shared.drops_bytes(connection) {
            // Counted before the server can answer it.
            shared.count(Event::Request);
            free_at = write(shared, connection, Direction::Requests, &bytes, free_at.max(due))?;
        }
    }
    Ok(())
}

fn write_replies(shared: &Shared, connection: &Connection, pieces: &Receiver<Piece>) -> io::Result<()> {
    let mut free_at = Instant::now();
    for Piece { due, bytes } in pieces {
        if !connection.gate.open_until(due) {
            return Err(closed());
        }
        if shared.drops_bytes(connection) {
            continue;
        }
        match fate(shared) {
            Fate::Passed => {
                free_at = write(shared, connection, Direction::Replies, &bytes, free_at.max(due))?;
            }
            Fate::Lost => {
                shared.count(Event::LostReply);
                connection.close();
                return Err(closed());
            }
            Fate::Cut => {
                (&connection.client).write_all(&bytes[..bytes.len() / 2])?;
                shared.count(Event::CutReply);
                connection.reset()?;
                return Err(closed());
            }
        }
    }
    Ok(())
}

fn fate(shared: &Shared) -> Fate {
    let Faults { lose_reply, cut_reply, .. } = shared.faults();
    let random = shared.random_fraction();
    if random < lose_reply {
        Fate::Lost
    } else if random < lose_reply + cut_reply {
        Fate::Cut
    } else {
        Fate::Passed
    }
}

/// Bytes that are due within this time leave together.
const STEP: Duration = Duration::from_millis(1);

/// Writes at the rate that is currently set, on a line that is free from this instant. Returns when it is free again.
fn write(
    shared: &Shared,
    connection: &Connection,
    direction: Direction,
    bytes: &[u8],
    mut free_at: Instant,
) -> io::Result<Instant> {
    let (mut to, slow) = match direction {
        Direction::Requests => (&connection.server, Event::SlowRequest),
        Direction::Replies => (&connection.client, Event::SlowReply),
    };
    let (mut rest, mut is_counted) = (bytes, false);
    while !rest.is_empty() {
        let Some(rate) = direction.line(&shared.faults()).bytes_per_sec else {
            to.write_all(rest)?;
            return Ok(Instant::now());
        };
        if !is_counted {
            shared.count(slow);
            is_counted = true;
        }
        let pause = Duration::from_secs(1) / rate.get();
        let next = STEP.as_nanos().div_ceil(pause.as_nanos().max(1)).clamp(1, rest.len() as u128) as u32;
        if !connection.gate.open_until(free_at + pause * next) {
            return Err(closed());
        }
        let (due, later) = rest.split_at(next as usize);
        to.write_all(due)?;
        (rest, free_at) = (later, free_at + pause * next);
    }
    Ok(free_at)
}

fn closed() -> io::Error {
    io::ErrorKind::ConnectionAborted.into()
}

impl Direction {
    fn line(self, faults: &Faults) -> Line {
        match self {
            Direction::Requests => faults.requests,
            Direction::Replies => faults.replies,
        }
    }
}
