//! The connection preface of HTTP/2. A connection without it, or where it is late, is closed.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::time::timeout;

/// The first bytes of every HTTP/2 client (RFC 9113, 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// How long the preface may take.
const PREFACE_TIMEOUT: Duration = Duration::from_secs(5);

/// A stream whose preface has been consumed. Reading it returns the preface again.
pub(super) struct Prefaced<T> {
    given: usize,
    stream: T,
}

/// Waits for the preface; `None` if the client sends something else or nothing.
pub(super) async fn wait_for<T: AsyncRead + Unpin>(mut stream: T) -> Option<Prefaced<T>> {
    let mut first = [0; PREFACE.len()];
    match timeout(PREFACE_TIMEOUT, stream.read_exact(&mut first)).await {
        Ok(Ok(_)) if first == *PREFACE => Some(Prefaced { given: 0, stream }),
        _ => None,
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Prefaced<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let rest = &PREFACE[self.given..];
        if rest.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buffer);
        }
        let part = &rest[..rest.len().min(buffer.remaining())];
        buffer.put_slice(part);
        self.given += part.len();
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Prefaced<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
