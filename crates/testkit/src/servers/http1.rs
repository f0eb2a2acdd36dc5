//! A blocking client of JSON over HTTP/1.1: one call after the other on one connection.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

const TIMEOUT: Duration = Duration::from_secs(20);

/// A connection to a server.
pub struct Http1 {
    stream: BufReader<TcpStream>,
}

/// The answer to a call.
#[derive(Clone, PartialEq, Debug)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The `ETag`, if there is one.
    pub etag: Option<String>,
    /// The body; `null` if it is not JSON.
    pub json: Value,
}

impl Http1 {
    /// Connects to a server.
    pub fn connect(address: SocketAddr) -> io::Result<Http1> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_nodelay(true)?;
        Ok(Http1 { stream: BufReader::new(stream) })
    }

    /// Sends a call with these header fields, and reads the whole answer. `null` stands for no body.
    pub fn call(
        &mut self,
        method: &str,
        path: &str,
        fields: &[(&str, &str)],
        body: &Value,
    ) -> io::Result<Answer> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let mut request = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n");
        for (name, value) in fields {
            request += &format!("{name}: {value}\r\n");
        }
        if method != "GET" {
            request += &format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len());
        }
        self.stream.get_mut().write_all(format!("{request}\r\n{body}").as_bytes())?;
        let mut line = String::new();
        self.read_line(&mut line)?;
        let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
        let (mut length, mut etag) = (0, None);
        loop {
            self.read_line(&mut line)?;
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.trim().parse().map_err(io::Error::other)?,
                "etag" => etag = Some(value.trim().to_owned()),
                _ => (),
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        let status = status.ok_or(io::ErrorKind::InvalidData)?;
        Ok(Answer { status, etag, json: serde_json::from_slice(&body).unwrap_or(Value::Null) })
    }

    fn read_line(&mut self, line: &mut String) -> io::Result<()> {
        line.clear();
        match self.stream.read_line(line)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}
