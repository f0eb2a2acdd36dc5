//! The bytes of one connection: what has come and was not answered yet, and what was answered and has not gone yet.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use super::frame::Limits;

/// Enough for one command, or for a short pipeline of them.
const INPUT_MIN: usize = 4 * 1024;
/// Enough for the longest command.
const INPUT_MAX: usize = Limits::KNOWN.command;
/// No more commands are looked at while so much waits to be read by the client.
pub(crate) const OUTPUT_MAX: usize = 256 * 1024;
/// How much of what a client still sends after the end is thrown away before it is cut off.
const LINGER_MAX: usize = 1024 * 1024;
const LINGER: Duration = Duration::from_secs(5);

pub(crate) struct Connection<T> {
    stream: T,
    input: Vec<u8>,
    /// Where in the input lies what was not answered yet.
    start: usize,
    end: usize,
    pub(crate) output: Vec<u8>,
    /// How much of the output has gone.
    sent: usize,
    flushed: bool,
    /// Whether anything went either way since somebody asked.
    moved: bool,
}

/// What has happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    /// More has come, or there is room for more answers.
    Ready,
    /// The client says no more, or is gone.
    Over,
    /// The server is to end.
    Ending,
    /// Time has passed.
    Tick,
}

impl<T: AsyncRead + AsyncWrite + Unpin> Connection<T> {
    pub(crate) fn new(stream: T) -> Connection<T> {
        Connection {
            stream,
            input: vec![0; INPUT_MIN],
            start: 0,
            end: 0,
            output: Vec::new(),
            sent: 0,
            flushed: true,
            moved: false,
        }
    }

    /// What has come and was not answered yet, and where answers go.
    pub(crate) fn sides(&mut self) -> (&mut [u8], &mut Vec<u8>) {
        (&mut self.input[self.start..self.end], &mut self.output)
    }

    /// So much of the input needs no more attention.
    pub(crate) fn consume(&mut self, len: usize) {
        self.start = (self.start + len).min(self.end);
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Whether a part of a command has come, or answers wait to be read.
    pub(crate) const fn is_amid(&self) -> bool {
        self.start < self.end || self.sent < self.output.len()
    }

    /// Whether anything went either way since it was asked last.
    pub(crate) const fn take_moved(&mut self) -> bool {
        std::mem::replace(&mut self.moved, false)
    }

    /// Gives memory back that only a busy connection needs.
    pub(crate) fn rest(&mut self) {
        if !self.is_amid() {
            self.input.truncate(INPUT_MIN);
            self.input.shrink_to_fit();
            self.output = Vec::new();
        }
    }

    /// Sends what there is to send, and waits until there is something to do. `more` says that commands may be left in
    /// the input, so that no others are needed.
    pub(crate) async fn exchange(
        &mut self,
        more: bool,
        mut ending: Pin<&mut impl Future<Output = ()>>,
        mut tick: Pin<&mut Sleep>,
    ) -> Event {
        poll_fn(|cx| {
            if self.poll_send(cx).is_err() {
                return Poll::Ready(Event::Over);
            }
            if ending.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Event::Ending);
            }
            if self.output.len() - self.sent < OUTPUT_MAX {
                if more {
                    return Poll::Ready(Event::Ready);
                }
                if let Poll::Ready(received) = self.poll_receive(cx) {
                    return Poll::Ready(match received {
                        Ok(0) | Err(_) => Event::Over,
                        Ok(_) => Event::Ready,
                    });
                }
            }
            tick.as_mut().poll(cx).map(|()| Event::Tick)
        })
        .await
    }

    /// What has come already, without waiting for more.
    pub(crate) async fn receive_now(&mut self) {
        poll_fn(|cx| {
            // Whatever is wrong with the connection shows when the answers are sent.
            let _nothing = self.poll_receive(cx).is_pending();
            Poll::Ready(())
        })
        .await;
    }

    /// Sends what is left, and ends the connection so that the client gets it all: one that is closed while something
    /// unread has come is cut off, and what was sent may be lost.
    pub(crate) async fn finish(mut self) {
        let farewell = async {
            poll_fn(|cx| self.poll_finish(cx)).await?;
            let mut dropped = 0;
            while dropped < LINGER_MAX {
                (self.start, self.end) = (0, 0);
                match poll_fn(|cx| self.poll_receive(cx)).await? {
                    0 => break,
                    len => dropped += len,
                }
            }
            io::Result::Ok(())
        };
        // Nothing can be done for a client that is gone or does not read.
        let _gone = tokio::time::timeout(LINGER, farewell).await.is_ok_and(|said| said.is_err());
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_send(cx)?;
        if self.sent < self.output.len() || !self.flushed {
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    /// Sends as much as goes.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        while self.sent < self.output.len() {
            match Pin::new(&mut self.stream).poll_write(cx, &self.output[self.sent..]) {
                Poll::Pending => {
                    // What has gone makes room, so that whoever looks at what is left sees the same everywhere.
                    self.output.drain(..self.sent);
                    self.sent = 0;
                    return Ok(());
                }
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(len)) => {
                    self.sent += len;
                    (self.flushed, self.moved) = (false, true);
                }
                Poll::Ready(Err(error)) => return Err(error),
            }
        }
        self.output.clear();
        self.sent = 0;
        if !self.flushed
            && let Poll::Ready(flushed) = Pin::new(&mut self.stream).poll_flush(cx)
        {
            flushed?;
            self.flushed = true;
        }
        Ok(())
    }

    /// Receives what fits.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.start > 0 {
            self.input.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.end == self.input.len() && self.end < INPUT_MAX {
            self.input.resize((2 * self.end).clamp(INPUT_MIN, INPUT_MAX), 0);
        }
        let mut free = ReadBuf::new(&mut self.input[self.end..]);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut free))?;
        let len = free.filled().len();
        // A client that fills it has more to say.
        let is_full = len > 0 && free.remaining() == 0;
        self.end += len;
        self.moved |= len > 0;
        if is_full && self.input.len() < INPUT_MAX {
            self.input.resize((2 * self.input.len()).min(INPUT_MAX), 0);
        }
        Poll::Ready(Ok(len))
    }
}
