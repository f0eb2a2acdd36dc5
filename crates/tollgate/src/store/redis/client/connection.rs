//! A connection to a Redis server: a byte stream, and a plain command/reply exchange on top of it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::store::redis::error::RedisError;
use crate::store::redis::protocol::resp::{self, Reply};

/// A TCP stream, with or without TLS.
#[derive(Debug)]
pub(crate) enum RedisStream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// A connection that carries one command at a time.
#[derive(Debug)]
pub(crate) struct CommandConnection {
    stream: RedisStream,
    input: Vec<u8>,
    /// Length of the last reply, which is still in `input`.
    consumed: usize,
}

impl CommandConnection {
    pub(crate) fn new(stream: RedisStream) -> CommandConnection {
        CommandConnection { stream, input: Vec::new(), consumed: 0 }
    }

    /// Sends a command and returns its reply. An error reply is an error.
    pub(crate) async fn command(&mut self, arguments: &[&[u8]]) -> Result<Reply<'_>, RedisError> {
        let mut output = Vec::new();
        resp::write_command(&mut output, arguments);
        self.send(&output).await?;
        match self.receive().await? {
            Reply::Error(text) => Err(RedisError::ErrorReply(text)),
            reply => Ok(reply),
        }
    }

    /// Sends bytes.
    pub(crate) async fn send(&mut self, bytes: &[u8]) -> Result<(), RedisError> {
        self.stream.write_all(bytes).await?;
        self.stream.flush().await?;
        Ok(())
    }

    /// Returns the next reply. Cancel safe: bytes that were read stay in the buffer.
    pub(crate) async fn receive(&mut self) -> Result<Reply<'_>, RedisError> {
        self.input.drain(..std::mem::take(&mut self.consumed));
        while resp::parse(&self.input)?.is_none() {
            if self.stream.read_buf(&mut self.input).await? == 0 {
                return Err(RedisError::ConnectionLost(None));
            }
        }
        let (reply, length) =
            resp::parse(&self.input)?.ok_or(RedisError::UnexpectedReply("incomplete reply"))?;
        self.consumed = length;
        Ok(reply)
    }

    pub(crate) fn into_stream(self) -> RedisStream {
        self.stream
    }
}

macro_rules! delegate {
    ($self:ident, $method:ident $(, $argument:ident)*) => {
        match $self.get_mut() {
            RedisStream::Plain(stream) => Pin::new(stream).$method($($argument),*),
            RedisStream::Tls(stream) => Pin::new(stream.as_mut()).$method($($argument),*),
        }
    };
}

impl AsyncRead for RedisStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        delegate!(self, poll_read, cx, buf)
    }
}

impl AsyncWrite for RedisStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        delegate!(self, poll_write, cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        delegate!(self, poll_flush, cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        delegate!(self, poll_shutdown, cx)
    }
}
