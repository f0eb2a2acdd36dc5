//! RESP: the protocol of Redis, so that any of its clients can ask.

mod about;
mod check;
mod command;
mod connection;
mod frame;
mod pending;
mod question;
mod reply;
mod session;
mod text;
mod throttle;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, sleep};

use crate::serve::shared::{Peer, Shared};
use connection::{Connection, Event, OUTPUT_MAX};
use frame::Places;
use pending::Pending;
use reply::Reply;
use session::{Session, Step};

/// How often a connection is looked at that nothing comes from.
const TICK: Duration = Duration::from_secs(15);
/// So many ticks in a row without a byte end a connection that has said half a command, does not read its answers, or
/// has not shown a token.
const STALLED_TICKS: u32 = 2;
/// So many end any.
const IDLE_TICKS: u32 = 40;

/// When the server is to end, clients are heard for so long: what they sent before they could know may be on its way.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// Whether the conversation goes on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Talk {
    /// Everything that has come is answered.
    Answered,
    /// The client should read answers first.
    Full,
    /// No more commands are taken.
    Over,
}

/// Serves one connection until it ends, or until the server does.
pub(crate) async fn serve<T>(stream: T, peer: Peer, shared: Arc<Shared>)
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut connection = Connection::new(stream);
    let mut session = Session::new(peer, &shared);
    let mut places = Places::new();
    let mut ending = pin!(shared.ending.cancelled().fuse());
    let mut tick = pin!(sleep(TICK));
    let (mut quiet_ticks, mut is_last) = (0, false);
    let mut talk = Talk::Answered;
    while talk != Talk::Over {
        match connection.exchange(talk == Talk::Full, ending.as_mut(), tick.as_mut()).await {
            Event::Ready => {
                talk = answer(&mut connection, &mut session, &mut places, &shared).await;
                // Who never pauses would never let it tick.
                if is_last && tick.deadline() <= Instant::now() {
                    break;
                }
            }
            // It may have closed only the side on which it sends.
            Event::Over => break,
            // Tells it once; from then on the next tick is the last.
            Event::Ending => {
                is_last = true;
                tick.as_mut().reset(Instant::now() + LAST_WORDS);
            }
            Event::Tick if is_last => {
                connection.receive_now().await;
                answer(&mut connection, &mut session, &mut places, &shared).await;
                break;
            }
            Event::Tick => {
                // Whoever may do nothing yet is not given more time for talking.
                let is_alive = connection.take_moved() && !session.is_anonymous();
                quiet_ticks = if is_alive { 0 } else { quiet_ticks + 1 };
                let patience_ticks =
                    if connection.is_amid() || session.is_anonymous() { STALLED_TICKS } else { IDLE_TICKS };
                if quiet_ticks >= patience_ticks {
                    break;
                }
                if quiet_ticks > 0 {
                    connection.rest();
                }
                tick.as_mut().reset(Instant::now() + TICK);
            }
        }
    }
    connection.finish().await;
}

/// Answers every command that has come as a whole, as long as there is room for answers.
async fn answer<T>(
    connection: &mut Connection<T>,
    session: &mut Session,
    places: &mut Places,
    shared: &Shared,
) -> Talk
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    let (mut rest, output) = connection.sides();
    let len = rest.len();
    let mut pending = Pending::new();
    let talk = loop {
        if output.len() >= OUTPUT_MAX {
            break Talk::Full;
        }
        let end = match frame::next(rest, session.limits(), places) {
            Ok(Some(end)) => end,
            Ok(None) => break Talk::Answered,
            Err(error) => {
                Reply::new(output, session.protocol).error("ERR", error);
                break Talk::Over;
            }
        };
        let (bytes, after) = std::mem::take(&mut rest).split_at_mut(end);
        rest = after;
        let words = places.words(bytes);
        if words.len() == 0 {
            continue;
        }
        match session.carry_out(shared, words, !pending.is_empty(), output) {
            Step::Answered => (),
            Step::Left => break Talk::Over,
            Step::Ask { question, unheard } => {
                let alone = question.stands_alone();
                if alone || pending.is_full() {
                    pending.settle(output).await;
                }
                pending.push(question.ask(&shared.gate, session.protocol), output.len(), unheard);
                if alone {
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
    talk
}

#[cfg(test)]
mod tests;
