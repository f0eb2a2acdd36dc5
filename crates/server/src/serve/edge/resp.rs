//! RESP: the Redis protocol, so that any Redis client can send checks.

pub(crate) mod commands;
mod connection;
pub(crate) mod frame;
mod output_budget;
mod pending;
pub(crate) mod reply;
mod session;
mod text;
mod turn;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, sleep};

use super::auth::Peer;
use crate::serve::server_state::ServerState;
use connection::{Connection, Event};
use frame::WordSpans;
pub(crate) use output_budget::OutputBudget;
use output_budget::OutputShare;
use pending::Pending;
use reply::Reply;
use session::{Session, Step};
use turn::Turn;

/// How often an idle connection is examined.
const TICK: Duration = Duration::from_secs(15);
/// A connection is closed after this many idle ticks if a command is incomplete, its output is not read, or it has no scope.
const STALLED_TICKS: u32 = 2;
/// Any connection is closed after this many idle ticks.
const IDLE_TICKS: u32 = 40;

/// On shutdown, commands are accepted for this long: they may be in flight already.
const DRAIN: Duration = Duration::from_millis(100);

/// How far the input was processed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// All complete commands are answered.
    Done,
    /// The turn is over; other connections of the thread come first.
    Turn,
    /// The output is full; the client must read first.
    Full,
    /// The connection is to be closed.
    Closing,
}

/// Serves one connection until the client or the server closes it.
pub(crate) async fn serve<T>(stream: T, peer: Peer, state: Arc<ServerState>)
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let share = OutputShare::new(Arc::clone(&state.output));
    let mut connection = Connection::new(stream, share);
    let mut session = Session::new(peer, &state);
    let mut spans = WordSpans::new();
    let mut ending = pin!(state.ending.cancelled().fuse());
    let mut tick = pin!(sleep(TICK));
    let (mut idle_ticks, mut is_last) = (0, false);
    let mut progress = Progress::Done;
    while progress != Progress::Closing {
        match connection.exchange(progress == Progress::Full, ending.as_mut(), tick.as_mut()).await {
            Event::Ready => {
                progress = run_commands(&mut connection, &mut session, &mut spans, &state).await;
                while progress == Progress::Turn {
                    tokio::task::yield_now().await;
                    progress = run_commands(&mut connection, &mut session, &mut spans, &state).await;
                }
                // With a client that never pauses the timer would never be polled.
                if is_last && tick.deadline() <= Instant::now() {
                    break;
                }
            }
            // The client may have closed its sending side only, so the output is still sent.
            Event::Closed => break,
            // This event occurs once. The next tick is the last.
            Event::Ending => {
                is_last = true;
                tick.as_mut().reset(Instant::now() + DRAIN);
            }
            Event::Tick if is_last => {
                connection.receive_now().await;
                while run_commands(&mut connection, &mut session, &mut spans, &state).await == Progress::Turn
                {
                }
                break;
            }
            Event::Tick => {
                // Activity does not count without a scope.
                let is_active = connection.take_is_active() && !session.has_no_scope();
                idle_ticks = if is_active { 0 } else { idle_ticks + 1 };
                let is_stalled = connection.has_unfinished_data() || session.has_no_scope();
                if idle_ticks >= if is_stalled { STALLED_TICKS } else { IDLE_TICKS } {
                    break;
                }
                if idle_ticks > 0 {
                    connection.shrink();
                }
                tick.as_mut().reset(Instant::now() + TICK);
            }
        }
    }
    connection.finish().await;
}

/// Runs complete commands, as long as the turn lasts and there is room for output.
async fn run_commands<T>(
    connection: &mut Connection<T>,
    session: &mut Session,
    spans: &mut WordSpans,
    state: &ServerState,
) -> Progress
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    let output_max = connection.output_max();
    let (mut rest, output) = connection.buffers();
    let mut turn = Turn::default();
    let len = rest.len();
    let mut pending = Pending::new();
    let progress = loop {
        if output.len() >= output_max {
            break Progress::Full;
        }
        if turn.is_over() {
            break Progress::Turn;
        }
        let end = match frame::next(rest, session.limits(), spans) {
            Ok(Some(end)) => end,
            Ok(None) => break Progress::Done,
            Err(error) => {
                Reply::new(output, session.version).error("ERR", error);
                break Progress::Closing;
            }
        };
        let (bytes, after) = std::mem::take(&mut rest).split_at_mut(end);
        rest = after;
        let words = spans.words(bytes);
        if words.len() == 0 {
            continue;
        }
        match session.run(state, words, !pending.is_empty(), output) {
            Step::Done => (),
            Step::Quit => break Progress::Closing,
            Step::Wait { command, is_silent } => {
                let (runs_alone, caller) = (command.runs_alone(), Arc::clone(session.caller()));
                if runs_alone || pending.is_full() {
                    pending.settle(output).await;
                }
                let mut work = state.work.enter(&caller, 1);
                if work.is_err() && !pending.is_empty() {
                    // Its own calls are in flight. When they are done, there may be room.
                    pending.settle(output).await;
                    work = state.work.enter(&caller, 1);
                }
                match work {
                    Ok(work) => {
                        let call = command.run(&state.gate, caller, work, session.version);
                        pending.push(call, output.len(), is_silent);
                    }
                    Err(_) if is_silent => (),
                    Err(overloaded) => Reply::new(output, session.version).edge_error(&overloaded.into()),
                }
                if runs_alone {
                    pending.settle(output).await;
                }
            }
        }
    };
    if !pending.is_empty() {
        pending.settle(output).await;
    }
    let consumed = len - rest.len();
    drop(pending);
    connection.consume(consumed);
    if progress != Progress::Done {
        connection.count_output();
    }
    progress
}

#[cfg(test)]
pub(in crate::serve::edge) mod tests;
