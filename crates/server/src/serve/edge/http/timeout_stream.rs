//! Timeouts of a connection: for the head of a request, its body, reading the response, and between requests.
//!
//! A request that arrives whole needs no timer. Only a connection that waits reads the clock, and its timer is reset only
//! if it would fire too late.

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
/// Longer than most proxies keep an idle connection, so that the proxy closes it.
const IDLE: Duration = Duration::from_secs(75);
const WRITE: Duration = Duration::from_secs(30);

/// The phase of the current request on a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RequestPhase {
    Idle = 0,
    Head = 1,
    Body = 2,
    /// The client waits for the response.
    Response = 3,
}

/// The phase, shared by the stream and the request handler. The lowest two bits are the phase; the others count changes, so
/// that the same phase of the next request has another value.
#[derive(Clone, Default)]
pub(super) struct PhaseCell(Arc<AtomicU32>);

impl PhaseCell {
    pub(super) fn set(&self, phase: RequestPhase) {
        let changes = (self.0.load(Ordering::Relaxed) >> 2).wrapping_add(1);
        self.0.store(changes << 2 | phase as u32, Ordering::Relaxed);
    }

    fn now(&self) -> (u32, RequestPhase) {
        let now = self.0.load(Ordering::Relaxed);
        let phase = match now & 3 {
            0 => RequestPhase::Idle,
            1 => RequestPhase::Head,
            2 => RequestPhase::Body,
            _ => RequestPhase::Response,
        };
        (now, phase)
    }
}

/// A connection that fails with `TimedOut` when its client takes too long.
pub(super) struct TimeoutStream<T> {
    stream: T,
    phase: PhaseCell,
    /// The deadline of reads, and the phase that it belongs to.
    reads: Option<(u32, Instant)>,
    /// The deadline of writes. Both can be active at once.
    writes: Option<Instant>,
    /// Fires at the earlier deadline, or before it.
    timer: Option<Pin<Box<Sleep>>>,
}

impl<T> TimeoutStream<T> {
    pub(super) fn new(stream: T, phase: PhaseCell) -> TimeoutStream<T> {
        TimeoutStream { stream, phase, reads: None, writes: None, timer: None }
    }

    fn wait_to_read(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        let (now, phase) = self.phase.now();
        let timeout = match phase {
            RequestPhase::Idle => IDLE,
            RequestPhase::Head => HEAD,
            RequestPhase::Body => BODY,
            RequestPhase::Response => return Poll::Pending,
        };
        let due = match self.reads {
            Some((same, due)) if same == now => due,
            _ => Instant::now() + timeout,
        };
        self.reads = Some((now, due));
        self.wait_until(due, context)
    }

    fn wait_to_write(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        let due = *self.writes.get_or_insert_with(|| Instant::now() + WRITE);
        self.wait_until(due, context)
    }

    /// Pending until `due`. If the timer fires earlier for another deadline, it is set again.
    fn wait_until(&mut self, due: Instant, context: &mut Context<'_>) -> Poll<io::Error> {
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(due)));
        if timer.deadline() > due {
            timer.as_mut().reset(due);
        }
        loop {
            ready!(timer.as_mut().poll(context));
            if Instant::now() >= due {
                return Poll::Ready(io::ErrorKind::TimedOut.into());
            }
            timer.as_mut().reset(due);
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

impl<T: AsyncRead + Unpin> AsyncRead for TimeoutStream<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        match Pin::new(&mut self.stream).poll_read(context, buffer) {
            Poll::Ready(read) => {
                if buffer.filled().len() > before && self.phase.now().1 == RequestPhase::Idle {
                    self.phase.set(RequestPhase::Head);
                }
                Poll::Ready(read)
            }
            Poll::Pending => self.wait_to_read(context).map(Err),
        }
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for TimeoutStream<T> {
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

    /// How long a read waits for a client that sends nothing, after these phases.
    async fn read_in(phases: &[RequestPhase]) -> Duration {
        let (client, server) = duplex(64);
        let phase = PhaseCell::default();
        let mut server = TimeoutStream::new(server, phase.clone());
        let mut one = [0; 1];
        // Every connection has a timer from the time before its first request.
        assert!(timeout(Duration::from_secs(1), server.read(&mut one)).await.is_err());
        phases.iter().for_each(|next| phase.set(*next));
        let started = Instant::now();
        let gone = server.read(&mut one).await.expect_err("it times out");
        assert_eq!(gone.kind(), io::ErrorKind::TimedOut);
        drop(client);
        started.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn every_phase_has_its_own_timeout() {
        let within =
            |took: Duration, most: Duration| (most..most + Duration::from_millis(10)).contains(&took);
        assert!(within(read_in(&[RequestPhase::Head]).await, HEAD));
        assert!(within(read_in(&[RequestPhase::Head, RequestPhase::Body]).await, BODY));
        assert!(within(
            read_in(&[RequestPhase::Head, RequestPhase::Response, RequestPhase::Idle]).await,
            IDLE
        ));
    }

    /// While a response waits to be written, hyper also reads to notice a disconnect.
    #[tokio::test(start_paused = true)]
    async fn a_write_times_out_while_a_read_is_pending() {
        let (_client, server) = duplex(64);
        let mut server = TimeoutStream::new(server, PhaseCell::default());
        server.write_all(&[0; 64]).await.expect("there is room");
        let started = Instant::now();
        let gone = std::future::poll_fn(|context| {
            let mut one = [0; 1];
            let heard = Pin::new(&mut server).poll_read(context, &mut ReadBuf::new(&mut one));
            assert!(heard.is_pending(), "nothing was sent, and the timeout is not over");
            Pin::new(&mut server).poll_write(context, &[0])
        });
        assert_eq!(gone.await.expect_err("it times out").kind(), io::ErrorKind::TimedOut);
        assert!(started.elapsed() <= WRITE + Duration::from_secs(1), "{:?}", started.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn single_bytes_do_not_extend_the_timeout() {
        let (mut client, server) = duplex(64);
        let mut server = TimeoutStream::new(server, PhaseCell::default());
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
            assert!(started.elapsed() < IDLE, "the idle timeout does not apply");
        };
        assert_eq!(gone.kind(), io::ErrorKind::TimedOut);
        assert!(started.elapsed() <= HEAD + Duration::from_secs(1), "{:?}", started.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn there_is_no_read_timeout_while_the_client_waits_for_the_response() {
        let (_client, server) = duplex(64);
        let phase = PhaseCell::default();
        let mut server = TimeoutStream::new(server, phase.clone());
        phase.set(RequestPhase::Response);
        assert!(timeout(2 * IDLE, server.read(&mut [0; 1])).await.is_err(), "it never times out");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_times_out() {
        let (_client, server) = duplex(64);
        let mut server = TimeoutStream::new(server, PhaseCell::default());
        let started = Instant::now();
        let gone = server.write_all(&[0; 65]).await.expect_err("it times out");
        assert_eq!((gone.kind(), started.elapsed() >= WRITE), (io::ErrorKind::TimedOut, true));
        advance(WRITE).await;
    }
}
