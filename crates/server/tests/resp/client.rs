//! A client that sends any bytes and compares the reply.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

/// Long, because the machine may be busy with other tests.
const TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) struct Client {
    stream: TcpStream,
}

impl Client {
    pub(crate) fn connect(at: SocketAddr) -> Client {
        let stream = TcpStream::connect(at).expect("it listens");
        stream.set_nodelay(true).expect("a socket");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a socket");
        Client { stream }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("it reads");
    }

    /// One line of a reply, without its line break.
    pub(crate) fn line(&mut self) -> String {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            let mut byte = [0];
            self.stream.read_exact(&mut byte).unwrap_or_else(|error| panic!("{error} after {line:?}"));
            line.extend_from_slice(&byte);
        }
        String::from_utf8(line).expect("text").trim_end().to_owned()
    }

    /// Sends `sent` and expects exactly `expected`.
    pub(crate) fn expect(&mut self, sent: &[u8], expected: &[u8]) {
        self.send(sent);
        let mut found = vec![0; expected.len()];
        self.stream.read_exact(&mut found).expect("an answer");
        assert_eq!(
            found.escape_ascii().to_string(),
            expected.escape_ascii().to_string(),
            "to {}",
            sent.escape_ascii()
        );
    }

    /// Closes the sending side, and reads until the server closes the connection.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.stream.shutdown(Shutdown::Write).expect("a socket");
        self.rest()
    }

    /// Reads until the server closes the connection.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        self.stream.read_to_end(&mut rest).expect("an end");
        rest
    }
}

/// A command as clients send it.
pub(crate) fn command(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// Encodes a command from words that are separated by blanks.
pub(crate) fn say(text: &str) -> Vec<u8> {
    command(&text.split(' ').map(str::as_bytes).collect::<Vec<_>>())
}
