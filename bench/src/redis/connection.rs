//! One blocking connection: writes calls and reads the bytes of their replies without decoding them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::resp::length;

/// The longest wait for a reply.
const SILENT_MAX: Duration = Duration::from_secs(10);

/// A connection to a server on this machine.
pub(super) struct Connection(TcpStream);

/// Calls that are sent together, and the number of replies to expect.
pub(super) struct Pipeline {
    pub(super) bytes: Vec<u8>,
    pub(super) calls: usize,
}

/// Replies as received, one after another.
#[derive(Default)]
pub(super) struct Replies {
    bytes: Vec<u8>,
    /// The end of each reply.
    ends: Vec<usize>,
}

impl Connection {
    /// Connects to this port.
    pub(super) fn open(port: u16) -> Result<Connection> {
        let stream = TcpStream::connect(("127.0.0.1", port)).context("cannot connect to the server")?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SILENT_MAX))?;
        Ok(Connection(stream))
    }

    /// Sends calls and waits for all replies.
    pub(super) fn exchange(&mut self, pipeline: &Pipeline, replies: &mut Replies) -> Result<()> {
        self.0.write_all(&pipeline.bytes).context("the server does not read")?;
        let wanted = replies.ends.len() + pipeline.calls;
        let mut chunk = [0; 16 << 10];
        while replies.ends.len() < wanted {
            let length = self.0.read(&mut chunk).context("the server does not answer")?;
            ensure!(length > 0, "the server closed the connection");
            replies.take(&chunk[..length])?;
        }
        Ok(())
    }

    /// Sends one call and returns the reply.
    pub(super) fn ask(&mut self, call: Vec<u8>) -> Result<Vec<u8>> {
        let mut replies = Replies::default();
        self.exchange(&Pipeline { bytes: call, calls: 1 }, &mut replies)?;
        Ok(replies.bytes)
    }
}

impl Replies {
    /// The replies, one by one.
    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = [0].into_iter().chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.bytes[start..end])
    }

    fn take(&mut self, read: &[u8]) -> Result<()> {
        self.bytes.extend_from_slice(read);
        let mut start = self.ends.last().copied().unwrap_or(0);
        while let Some(length) = length(&self.bytes[start..])? {
            start += length;
            self.ends.push(start);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_separated_wherever_reads_cut_them() -> Result<()> {
        let sent: [&[u8]; 4] = [b"*3\r\n:1\r\n:22\r\n:0\r\n", b"$4\r\na\r\nb\r\n", b"-ERR no\r\n", b"*0\r\n"];
        let bytes = sent.concat();
        for cut in 0..=bytes.len() {
            let mut replies = Replies::default();
            replies.take(&bytes[..cut])?;
            replies.take(&bytes[cut..])?;
            assert_eq!(replies.iter().collect::<Vec<&[u8]>>(), sent, "cut at {cut}");
        }
        Ok(())
    }
}
