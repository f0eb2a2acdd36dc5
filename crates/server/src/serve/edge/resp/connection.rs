//! The buffers of one connection: input that is not answered yet, and output that is not sent yet.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use super::frame::Limits;
use super::output_budget::OutputShare;

/// Enough for one command or a short pipeline.
const INPUT_MIN: usize = 4 * 1024;
/// Enough for the longest command.
const INPUT_MAX: usize = Limits::AUTHENTICATED.command;
/// No more commands are read while this much output waits for the client.
pub(crate) const OUTPUT_MAX: usize = 256 * 1024;
/// Bytes that a client may still send after the last reply; they are discarded.
const LINGER_MAX: usize = 1024 * 1024;
const LINGER: Duration = Duration::from_secs(5);

pub(crate) struct Connection<T> {
    stream: T,
    input: Vec<u8>,
    /// The part of the input that is not answered yet.
    start: usize,
    end: usize,
    pub(crate) output: Vec<u8>,
    /// How much of the output is sent.
    sent: usize,
    flushed: bool,
    /// Whether bytes were received or sent since the last call of `take_is_active`.
    is_active: bool,
    /// Its part of the output that clients have not read.
    share: OutputShare,
}

/// Why [`Connection::exchange`] returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    /// There is new input, or room for more output.
    Ready,
    /// The client has closed the connection or its side of it.
    Closed,
    /// The server shuts down.
    Ending,
    /// The timer has fired.
    Tick,
}

impl<T: AsyncRead + AsyncWrite + Unpin> Connection<T> {
    pub(crate) fn new(stream: T, share: OutputShare) -> Connection<T> {
        Connection {
            stream,
            input: vec![0; INPUT_MIN],
            start: 0,
            end: 0,
            output: Vec::new(),
            sent: 0,
            flushed: true,
            is_active: false,
            share,
        }
    }

    /// How much output may wait before no more commands are run.
    pub(crate) fn output_max(&self) -> usize {
        self.share.limit(OUTPUT_MAX)
    }

    /// Counts the output of an unfinished pipeline toward the budget. Other output is usually sent at once.
    pub(crate) fn count_output(&mut self) {
        self.share.set(self.output.len() - self.sent);
    }

    /// The input that is not answered yet, and the output.
    pub(crate) fn buffers(&mut self) -> (&mut [u8], &mut Vec<u8>) {
        (&mut self.input[self.start..self.end], &mut self.output)
    }

    /// Removes `len` bytes of input.
    pub(crate) fn consume(&mut self, len: usize) {
        self.start = (self.start + len).min(self.end);
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Whether a command is incomplete or output waits to be sent.
    pub(crate) const fn has_unfinished_data(&self) -> bool {
        self.start < self.end || self.sent < self.output.len()
    }

    /// Whether bytes were received or sent since the last call.
    pub(crate) const fn take_is_active(&mut self) -> bool {
        std::mem::replace(&mut self.is_active, false)
    }

    /// Frees memory that only a busy connection needs.
    pub(crate) fn shrink(&mut self) {
        if !self.has_unfinished_data() {
            self.input.truncate(INPUT_MIN);
            self.input.shrink_to_fit();
            self.output = Vec::new();
        }
    }

    /// Sends output, and waits for an event. With `more`, the input may contain complete commands, so that no new input is
    /// needed.
    pub(crate) async fn exchange(
        &mut self,
        more: bool,
        mut ending: Pin<&mut impl Future<Output = ()>>,
        mut tick: Pin<&mut Sleep>,
    ) -> Event {
        poll_fn(|cx| {
            if self.poll_send(cx).is_err() {
                return Poll::Ready(Event::Closed);
            }
            if ending.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Event::Ending);
            }
            if self.output.len() - self.sent < self.output_max() {
                if more {
                    return Poll::Ready(Event::Ready);
                }
                if let Poll::Ready(received) = self.poll_receive(cx) {
                    return Poll::Ready(match received {
                        Ok(0) | Err(_) => Event::Closed,
                        Ok(_) => Event::Ready,
                    });
                }
            }
            tick.as_mut().poll(cx).map(|()| Event::Tick)
        })
        .await
    }

    /// Receives what has arrived, without waiting.
    pub(crate) async fn receive_now(&mut self) {
        poll_fn(|cx| {
            // Errors of the connection show when output is sent.
            let _is_pending = self.poll_receive(cx).is_pending();
            Poll::Ready(())
        })
        .await;
    }

    /// Sends the remaining output and closes the connection. Input is read until then: a socket that is closed with unread
    /// input is reset, and the client may lose output.
    pub(crate) async fn finish(mut self) {
        let closing = async {
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
        // Nothing can be done for a client that has disconnected or does not read.
        let _failed = tokio::time::timeout(LINGER, closing).await.is_ok_and(|closed| closed.is_err());
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_send(cx)?;
        if self.sent < self.output.len() || !self.flushed {
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    /// Sends as much as possible.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        while self.sent < self.output.len() {
            match Pin::new(&mut self.stream).poll_write(cx, &self.output[self.sent..]) {
                Poll::Pending => {
                    // Only unsent output stays in the buffer, so that its length is what waits.
                    self.output.drain(..self.sent);
                    self.sent = 0;
                    self.share.set(self.output.len());
                    return Ok(());
                }
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(len)) => {
                    self.sent += len;
                    (self.flushed, self.is_active) = (false, true);
                }
                Poll::Ready(Err(error)) => return Err(error),
            }
        }
        self.output.clear();
        self.sent = 0;
        self.share.set(0);
        if !self.flushed
            && let Poll::Ready(flushed) = Pin::new(&mut self.stream).poll_flush(cx)
        {
            flushed?;
            self.flushed = true;
        }
        Ok(())
    }

    /// Receives as much as fits.
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
        // A client that fills the buffer probably sends more.
        let is_full = len > 0 && free.remaining() == 0;
        self.end += len;
        self.is_active |= len > 0;
        if is_full && self.input.len() < INPUT_MAX {
            self.input.resize((2 * self.input.len()).min(INPUT_MAX), 0);
        }
        Poll::Ready(Ok(len))
    }
}
