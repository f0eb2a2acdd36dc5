//! A client that sends one check after the other over one connection.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};

pub(crate) struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> io::Result<Client> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        stream.set_nodelay(true)?;
        Ok(Client { stream: BufReader::new(stream) })
    }

    /// Sends a check. Returns whether it was allowed, or an error if no whole answer came.
    pub(crate) fn check(&mut self, attributes: &Value, cost: u64, id: &str) -> io::Result<bool> {
        let body = json!({ "attributes": attributes, "cost": cost, "id": id });
        let answer = self.post("/v1/check", &body)?;
        answer["allowed"].as_bool().ok_or_else(|| io::Error::other(answer.to_string()))
    }

    pub(crate) fn post(&mut self, path: &str, body: &Value) -> io::Result<Value> {
        let body = body.to_string();
        let length = body.len();
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        self.stream.get_mut().write_all(request.as_bytes())?;
        let mut length = 0;
        loop {
            let mut line = String::new();
            if self.stream.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let line = line.trim_end().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().map_err(io::Error::other)?;
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        serde_json::from_slice(&body).map_err(io::Error::other)
    }
}
