//! How long a client may take: for the head of a request, for its body, for reading the answer, and between requests.
//!
//! A request that arrives whole, as almost every request does, meets no timer: only a connection that has to wait
//! looks at the clock, and its alarm is set anew only if it would ring too late.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

const HEAD: Duration = Duration::from_secs(5);
const BODY: Duration = Duration::from_secs(10);
/// Longer than most proxies keep an idle connection, so that it is them who close it.
const IDLE: Duration = Duration::from_secs(75);
const WRITE: Duration = Duration::from_secs(30);

/// Where a connection is in the life of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    Idle = 0,
    Head = 1,
    Body = 2,
    /// The client waits for us.
    Answer = 3,
}

/// The phase, shared between who reads requests and who answers them. Two bits of phase, above them how often it has
/// changed, so that the same phase of the next request is another one.
#[derive(Clone, Default)]
pub(super) struct Pace(Arc<AtomicU32>);

impl Pace {
    pub(super) fn enter(&self, phase: Phase) {
        let changes = (self.0.load(Ordering::Relaxed) >> 2).wrapping_add(1);
        self.0.store(changes << 2 | phase as u32, Ordering::Relaxed);
    }

    fn now(&self) -> (u32, Phase) {
        let now = self.0.load(Ordering::Relaxed);
        let phase = match now & 3 {
            0 => Phase::Idle,
            1 => Phase::Head,
            2 => Phase::Body,
            _ => Phase::Answer,
        };
        (now, phase)
    }
}

/// A connection whose client is waited for, but not for ever.
pub(super) struct Patient<T> {
    stream: T,
    pace: Pace,
    /// Until when something is to have come, in the phase that it is waited for in.
    reads: Option<(u32, Instant)>,
    /// Until when the client is to have taken something. Both may be waited for at once.
    writes: Option<Instant>,
    /// Rings at the earlier of the two, or before.
    alarm: Option<Pin<Box<Sleep>>>,
}

impl<T> Patient<T> {
    pub(super) fn new(stream: T, pace: Pace) -> Patient<T> {
        Patient { stream, pace, reads: None, writes: None, alarm: None }
    }

    fn wait_to_read(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        let (now, phase) = self.pace.now();
        let most = match phase {
            Phase::Idle => IDLE,
            Phase::Head => HEAD,
            Phase::Body => BODY,
            Phase::Answer => return Poll::Pending,
        };
        let due = match self.reads {
            Some((same, due)) if same == now => due,
            _ => Instant::now() + most,
        };
        self.reads = Some((now, due));
        self.wait_until(due, context)
    }

    fn wait_to_write(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        let due = *self.writes.get_or_insert_with(|| Instant::now() + WRITE);
        self.wait_until(due, context)
    }

    /// Pending until then. An alarm for something else that rings earlier is looked at again then.
    fn wait_until(&mut self, due: Instant, context: &mut Context<'_>) -> Poll<io::Error> {
        let alarm = self.alarm.get_or_insert_with(|| Box::pin(sleep_until(due)));
        if alarm.deadline() > due {
            alarm.as_mut().reset(due);
        }
        loop {
            ready!(alarm.as_mut().poll(context));
            if Instant::now() >= due {
                return Poll::Ready(io::ErrorKind::TimedOut.into());
            }
            alarm.as_mut().reset(due);
        }
    }

    fn wrote<R>(&mut self, context: &mut Context<'_>, wrote: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        match wrote {
            Poll::Ready(wrote) => {
                self.writes = None;
                Poll::Ready(wrote)
            }
            Poll::Pending => self.wait_to_write(context).map(Err),
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Patient<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        match Pin::new(&mut self.stream).poll_read(context, buffer) {
            Poll::Ready(read) => {
                if buffer.filled().len() > before && self.pace.now().1 == Phase::Idle {
                    self.pace.enter(Phase::Head);
                }
                Poll::Ready(read)
            }
            Poll::Pending => self.wait_to_read(context).map(Err),
        }
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Patient<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.wrote(context, wrote)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.wrote(context, wrote)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let wrote = Pin::new(&mut self.stream).poll_flush(context);
        self.wrote(context, wrote)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let wrote = Pin::new(&mut self.stream).poll_shutdown(context);
        self.wrote(context, wrote)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::time::{advance, timeout};

    use super::*;

    /// A connection to a client that sends nothing, after so many phases.
    async fn read_in(phases: &[Phase]) -> Duration {
        let (client, server) = duplex(64);
        let pace = Pace::default();
        let mut server = Patient::new(server, pace.clone());
        let mut one = [0; 1];
        // As every connection has: an alarm from the time before the first request.
        assert!(timeout(Duration::from_secs(1), server.read(&mut one)).await.is_err());
        phases.iter().for_each(|phase| pace.enter(*phase));
        let started = Instant::now();
        let gone = server.read(&mut one).await.expect_err("nobody sends");
        assert_eq!(gone.kind(), io::ErrorKind::TimedOut);
        drop(client);
        started.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn every_phase_has_its_own_time() {
        let within =
            |took: Duration, most: Duration| (most..most + Duration::from_millis(10)).contains(&took);
        assert!(within(read_in(&[Phase::Head]).await, HEAD));
        assert!(within(read_in(&[Phase::Head, Phase::Body]).await, BODY));
        assert!(within(read_in(&[Phase::Head, Phase::Answer, Phase::Idle]).await, IDLE));
    }

    /// While an answer waits to be taken, it is also looked whether the client has gone.
    #[tokio::test(start_paused = true)]
    async fn who_takes_no_answer_is_left_although_it_is_listened_to() {
        let (_client, server) = duplex(64);
        let mut server = Patient::new(server, Pace::default());
        server.write_all(&[0; 64]).await.expect("there is room");
        let started = Instant::now();
        let gone = std::future::poll_fn(|context| {
            let mut one = [0; 1];
            let heard = Pin::new(&mut server).poll_read(context, &mut ReadBuf::new(&mut one));
            assert!(heard.is_pending(), "nothing is said, and it is not too long yet");
            Pin::new(&mut server).poll_write(context, &[0])
        });
        assert_eq!(gone.await.expect_err("nobody takes it").kind(), io::ErrorKind::TimedOut);
        assert!(started.elapsed() <= WRITE + Duration::from_secs(1), "{:?}", started.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn who_sends_a_byte_now_and_then_gets_no_more_time() {
        let (mut client, server) = duplex(64);
        let mut server = Patient::new(server, Pace::default());
        let started = Instant::now();
        let mut one = [0; 1];
        let gone = loop {
            client.write_all(b"x").await.expect("there is room");
            match server.read_exact(&mut one).await {
                Ok(_) => {
                    let nothing = timeout(Duration::from_secs(1), server.read(&mut one)).await;
                    if let Ok(Err(gone)) = nothing {
                        break gone;
                    }
                }
                Err(gone) => break gone,
            }
            assert!(started.elapsed() < IDLE, "it is still waited for");
        };
        assert_eq!(gone.kind(), io::ErrorKind::TimedOut);
        assert!(started.elapsed() <= HEAD + Duration::from_secs(1), "{:?}", started.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn while_the_client_waits_for_us_it_is_not_told_to_hurry() {
        let (_client, server) = duplex(64);
        let pace = Pace::default();
        let mut server = Patient::new(server, pace.clone());
        pace.enter(Phase::Answer);
        assert!(timeout(2 * IDLE, server.read(&mut [0; 1])).await.is_err(), "nobody gave up");
    }

    #[tokio::test(start_paused = true)]
    async fn who_does_not_read_its_answers_is_left() {
        let (_client, server) = duplex(64);
        let mut server = Patient::new(server, Pace::default());
        let started = Instant::now();
        let gone = server.write_all(&[0; 65]).await.expect_err("nobody reads");
        assert_eq!((gone.kind(), started.elapsed() >= WRITE), (io::ErrorKind::TimedOut, true));
        advance(WRITE).await;
    }
}
