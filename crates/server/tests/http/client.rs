//! A small HTTP client that can also send invalid and incomplete requests.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// Longer than any response takes.
const TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) struct Client {
    stream: TcpStream,
    /// Bytes that were received and not parsed yet.
    rest: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Response {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).expect("the server listens");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a socket has a timeout");
        stream.set_nodelay(true).expect("a socket can be set");
        Client { stream, rest: Vec::new() }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the server reads");
    }

    pub(crate) fn post(&mut self, path: &str, body: &str) -> Response {
        self.send(&request("POST", path, &[("content-type", "application/json")], body.as_bytes()));
        self.answer()
    }

    pub(crate) fn get(&mut self, path: &str) -> Response {
        self.send(&request("GET", path, &[], b""));
        self.answer()
    }

    /// The next response.
    pub(crate) fn answer(&mut self) -> Response {
        self.answer_to(true)
    }

    /// The next response. A response to HEAD has no body, whatever its length says.
    pub(crate) fn answer_to(&mut self, has_body: bool) -> Response {
        let end = loop {
            if let Some(end) = self.rest.windows(4).position(|four| four == b"\r\n\r\n") {
                break end;
            }
            assert!(self.read_more(), "the server closed the connection in a head: {:?}", self.rest);
        };
        let head = String::from_utf8(self.rest.drain(..end + 4).collect()).expect("a head is text");
        let mut lines = head.lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1)).expect("there is a status");
        let fields = lines.filter_map(|line| line.split_once(':'));
        let headers: Vec<_> =
            fields.map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned())).collect();
        let mut answer = Response { status: status.parse().expect("a number"), headers, body: String::new() };
        let len = answer.header("content-length").map_or(0, |len| len.parse().expect("a number"));
        let len = if has_body { len } else { 0 };
        while self.rest.len() < len {
            assert!(self.read_more(), "the server closed the connection in a body");
        }
        answer.body = String::from_utf8(self.rest.drain(..len).collect()).expect("a body is text");
        answer
    }

    /// Whether the server has closed the connection and sent nothing more.
    pub(crate) fn is_closed(&mut self) -> bool {
        self.rest.is_empty() && !self.read_more()
    }

    /// Reads until the server closes the connection.
    pub(crate) fn read_to_end(&mut self) {
        while self.read_more() {}
    }

    /// Reads until the received text has what is wanted, and returns it.
    pub(crate) fn read_until(&mut self, is_enough: impl Fn(&str) -> bool) -> String {
        loop {
            let text = String::from_utf8_lossy(&self.rest).into_owned();
            if is_enough(&text) {
                return text;
            }
            assert!(self.read_more(), "the server closed the connection after {text}");
        }
    }

    /// Whether the received bytes are a response with this status, or nothing was received.
    pub(crate) fn has_status_or_nothing(&self, status: u16) -> bool {
        self.rest.is_empty() || self.rest.starts_with(format!("HTTP/1.1 {status} ").as_bytes())
    }

    fn read_more(&mut self) -> bool {
        let mut bytes = [0; 4_096];
        match self.stream.read(&mut bytes) {
            Ok(read) => {
                self.rest.extend_from_slice(&bytes[..read]);
                read > 0
            }
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => false,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Encodes a request, with its content length.
pub(crate) fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut bytes = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n").into_bytes();
    for (name, value) in headers {
        bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    bytes.extend_from_slice(format!("content-length: {}\r\n\r\n", body.len()).as_bytes());
    bytes.extend_from_slice(body);
    bytes
}
