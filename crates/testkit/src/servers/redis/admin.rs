//! A blocking Redis client with which a test inspects a server directly.

pub(super) mod orphans;
pub(crate) mod resp;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use super::error::AdminError;
use resp::Value;

/// Default timeout of a reply.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A connection to a server. After a failure the next command reconnects, so that a late reply is never taken for the
/// reply to another command.
#[derive(Debug)]
pub struct Admin {
    port: u16,
    password: Option<String>,
    timeout: Duration,
    stream: Option<TcpStream>,
}

impl Admin {
    /// Connects to the server on this port, with the password of the default user if it has one.
    pub fn connect(port: u16, password: Option<&str>) -> Result<Admin, AdminError> {
        Admin::connect_within(port, password, TIMEOUT)
    }

    /// Like [`connect`](Self::connect), with this timeout for connecting and for every reply.
    pub fn connect_within(port: u16, password: Option<&str>, timeout: Duration) -> Result<Admin, AdminError> {
        let mut admin = Admin { port, password: password.map(str::to_owned), timeout, stream: None };
        admin.stream = Some(admin.open()?);
        Ok(admin)
    }

    /// Sets the timeout of replies, and reconnects.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
        self.stream = None;
    }

    /// Sends a command and waits for its reply. An error reply is an `Err`, but errors inside an array are values.
    pub fn command(&mut self, arguments: &[&[u8]]) -> Result<Value, AdminError> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => self.open()?,
        };
        let reply = ask(&mut stream, arguments)?;
        self.stream = Some(stream);
        accepted(reply)
    }

    /// Sends commands at once and returns their replies. An error reply is a value.
    pub fn pipeline(&mut self, commands: &[Vec<&[u8]>]) -> Result<Vec<Value>, AdminError> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => self.open()?,
        };
        let sent: Vec<u8> = commands.iter().flat_map(|arguments| resp::command(arguments)).collect();
        stream.write_all(&sent)?;
        let mut input = Vec::new();
        let replies = commands.iter().map(|_| read(&mut stream, &mut input)).collect::<Result<_, _>>()?;
        self.stream = Some(stream);
        Ok(replies)
    }

    /// Returns the fields of a section of INFO.
    pub fn info(&mut self, section: &str) -> Result<BTreeMap<String, String>, AdminError> {
        let text = match self.command(&[b"INFO", section.as_bytes()])? {
            Value::Bulk(text) => String::from_utf8_lossy(&text).into_owned(),
            reply => return Err(AdminError::Unexpected { command: "INFO", reply }),
        };
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        Ok(fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    /// Returns all keys that match, sorted.
    pub fn scan(&mut self, pattern: &str) -> Result<Vec<Vec<u8>>, AdminError> {
        let mut keys = BTreeSet::new();
        let mut cursor = b"0".to_vec();
        loop {
            let reply = self.command(&[b"SCAN", &cursor, b"MATCH", pattern.as_bytes(), b"COUNT", b"1000"])?;
            let (next, page) = page(reply)?;
            // The server may return a key more than once.
            keys.extend(page);
            cursor = next;
            if cursor == b"0" {
                return Ok(keys.into_iter().collect());
            }
        }
    }

    /// Returns the TTL of a key in milliseconds: -1 if it never expires, -2 if it does not exist.
    pub fn pttl(&mut self, key: &[u8]) -> Result<i64, AdminError> {
        match self.command(&[b"PTTL", key])? {
            Value::Integer(ttl_ms) => Ok(ttl_ms),
            reply => Err(AdminError::Unexpected { command: "PTTL", reply }),
        }
    }

    /// Returns the memory of a key with its value in bytes, or `None` if it does not exist.
    pub fn memory_usage(&mut self, key: &[u8]) -> Result<Option<u64>, AdminError> {
        match self.command(&[b"MEMORY", b"USAGE", key, b"SAMPLES", b"0"])? {
            Value::Nil => Ok(None),
            Value::Integer(bytes) if bytes >= 0 => Ok(Some(bytes.unsigned_abs())),
            reply => Err(AdminError::Unexpected { command: "MEMORY USAGE", reply }),
        }
    }

    /// Deletes all keys.
    pub fn flushall(&mut self) -> Result<(), AdminError> {
        self.command(&[b"FLUSHALL"]).map(drop)
    }

    /// Flushes the script cache.
    pub fn script_flush(&mut self) -> Result<(), AdminError> {
        self.command(&[b"SCRIPT", b"FLUSH"]).map(drop)
    }

    /// Returns the CPU time of the server since its start, in user and kernel mode.
    pub fn cpu_seconds(&mut self) -> Result<f64, AdminError> {
        let fields = self.info("cpu")?;
        let seconds = |name: &str| fields.get(name).and_then(|text| text.parse::<f64>().ok());
        match (seconds("used_cpu_user"), seconds("used_cpu_sys")) {
            (Some(user), Some(system)) => Ok(user + system),
            _ => {
                let reply = Value::Simple(format!("{fields:?}"));
                Err(AdminError::Unexpected { command: "INFO cpu", reply })
            }
        }
    }

    fn open(&self) -> Result<TcpStream, AdminError> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        let mut stream = TcpStream::connect_timeout(&address, self.timeout)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(self.timeout))?;
        stream.set_write_timeout(Some(self.timeout))?;
        if let Some(password) = &self.password {
            accepted(ask(&mut stream, &[b"AUTH", password.as_bytes()])?)?;
        }
        Ok(stream)
    }
}

fn ask(stream: &mut TcpStream, arguments: &[&[u8]]) -> Result<Value, AdminError> {
    stream.write_all(&resp::command(arguments))?;
    read(stream, &mut Vec::new())
}

/// Reads one reply. Bytes after it stay in `input`.
fn read(stream: &mut TcpStream, input: &mut Vec<u8>) -> Result<Value, AdminError> {
    let mut chunk = [0; 16 << 10];
    loop {
        if let Some((value, length)) = Value::parse(input)? {
            input.drain(..length);
            return Ok(value);
        }
        match stream.read(&mut chunk) {
            Ok(0) => return Err(io::Error::from(ErrorKind::UnexpectedEof).into()),
            Ok(length) => input.extend_from_slice(&chunk[..length]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn accepted(reply: Value) -> Result<Value, AdminError> {
    match reply {
        Value::Error(text) => Err(AdminError::Refused(text)),
        reply => Ok(reply),
    }
}

/// Returns the cursor and the keys of a reply to SCAN.
fn page(reply: Value) -> Result<(Vec<u8>, Vec<Vec<u8>>), AdminError> {
    match reply {
        Value::Array(parts) => match <[Value; 2]>::try_from(parts) {
            Ok([Value::Bulk(cursor), Value::Array(keys)]) => {
                let keys = keys.into_iter().map(|key| match key {
                    Value::Bulk(key) => Ok(key),
                    reply => Err(AdminError::Unexpected { command: "SCAN", reply }),
                });
                Ok((cursor, keys.collect::<Result<_, _>>()?))
            }
            Ok(parts) => Err(AdminError::Unexpected { command: "SCAN", reply: Value::Array(parts.into()) }),
            Err(parts) => Err(AdminError::Unexpected { command: "SCAN", reply: Value::Array(parts) }),
        },
        reply => Err(AdminError::Unexpected { command: "SCAN", reply }),
    }
}
