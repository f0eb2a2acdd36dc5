//! One HTTP call on a separate connection.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

const TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub(in super::super) struct Answer {
    pub(in super::super) status: u16,
    headers: Vec<(String, String)>,
    pub(in super::super) json: Value,
}

impl Answer {
    pub(in super::super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// Sends a request with these fields, and reads the whole answer. `null` stands for no body.
pub(in super::super) fn call(
    address: SocketAddr,
    method: &str,
    path: &str,
    fields: &[(&str, &str)],
    body: &Value,
) -> Answer {
    try_call(address, method, path, fields, body).unwrap_or_else(|error| panic!("{method} {path}: {error}"))
}

pub(in super::super) fn try_call(
    address: SocketAddr,
    method: &str,
    path: &str,
    fields: &[(&str, &str)],
    body: &Value,
) -> std::io::Result<Answer> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_nodelay(true)?;
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let host = if fields.iter().any(|(name, _)| *name == "host") { "" } else { "host: localhost\r\n" };
    let mut request = format!("{method} {path} HTTP/1.1\r\n{host}connection: close\r\n");
    for (name, value) in fields {
        request += &format!("{name}: {value}\r\n");
    }
    if method != "GET" {
        request += &format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len());
    }
    stream.write_all(format!("{request}\r\n{body}").as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let (head, body) = text.split_once("\r\n\r\n").ok_or(std::io::ErrorKind::UnexpectedEof)?;
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|status| status.parse().ok());
    let fields = lines.filter_map(|line| line.split_once(':'));
    Ok(Answer {
        status: status.ok_or(std::io::ErrorKind::InvalidData)?,
        headers: fields.map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned())).collect(),
        json: serde_json::from_str(body).unwrap_or(Value::Null),
    })
}

/// Waits until the condition holds, and returns whether it does.
pub(in super::super) fn eventually(condition: impl Fn() -> bool) -> bool {
    let deadline = Instant::now() + TIMEOUT;
    while Instant::now() < deadline {
        if condition() {
            return true;
        }
        thread::sleep(Duration::from_millis(10));
    }
    false
}
