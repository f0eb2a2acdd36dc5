//! Encodes replies in RESP2 and RESP3.

use std::fmt::{Display, Write as _};

use serde_json::Value;

use crate::serve::edge::error::EdgeError;

/// The protocol version of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum RespVersion {
    #[default]
    Resp2,
    Resp3,
}

/// Appends replies to an output buffer.
pub(crate) struct Reply<'o> {
    out: &'o mut Vec<u8>,
    version: RespVersion,
}

impl<'o> Reply<'o> {
    pub(crate) const fn new(out: &'o mut Vec<u8>, version: RespVersion) -> Reply<'o> {
        Reply { out, version }
    }

    pub(crate) const fn version(&self) -> RespVersion {
        self.version
    }

    /// A reply to the same buffer in another version.
    pub(crate) const fn with_version(&mut self, version: RespVersion) -> Reply<'_> {
        Reply { out: self.out, version }
    }

    /// A simple string.
    pub(crate) fn simple(&mut self, text: &'static str) {
        self.out.push(b'+');
        self.line(text.as_bytes());
    }

    /// An error: its prefix, a word in capitals, and its text.
    pub(crate) fn error(&mut self, prefix: &'static str, text: impl Display) {
        let mut line = String::new();
        // Writing to a string cannot fail.
        let written = write!(line, "-{prefix} {text}");
        debug_assert!(written.is_ok());
        // An error is one line.
        line.retain(|c| !c.is_control());
        self.line(line.as_bytes());
    }

    /// The error of a request.
    #[cold]
    pub(crate) fn edge_error(&mut self, error: &EdgeError) {
        self.error(error.resp_prefix(), error.message());
    }

    pub(crate) fn integer(&mut self, value: i64) {
        self.out.push(b':');
        self.digits(value);
    }

    /// A number of at most 2^53.
    pub(crate) fn count(&mut self, value: u64) {
        self.integer(i64::try_from(value).unwrap_or(i64::MAX));
    }

    pub(crate) fn bulk(&mut self, bytes: &[u8]) {
        self.head(b'$', bytes.len());
        self.line(bytes);
    }

    pub(crate) fn null(&mut self) {
        self.line(match self.version {
            RespVersion::Resp2 => b"$-1",
            RespVersion::Resp3 => b"_",
        });
    }

    /// A boolean; 1 or 0 in RESP2.
    pub(crate) fn boolean(&mut self, value: bool) {
        self.line(match (self.version, value) {
            (RespVersion::Resp2, true) => b":1",
            (RespVersion::Resp2, false) => b":0",
            (RespVersion::Resp3, true) => b"#t",
            (RespVersion::Resp3, false) => b"#f",
        });
    }

    /// The header of an array of `len` replies.
    pub(crate) fn array(&mut self, len: usize) {
        self.head(b'*', len);
    }

    /// The header of a map of `len` entries; an array of names and values in RESP2.
    pub(crate) fn map(&mut self, len: usize) {
        match self.version {
            RespVersion::Resp2 => self.head(b'*', 2 * len),
            RespVersion::Resp3 => self.head(b'%', len),
        }
    }

    /// The header of a set of `len` replies; an array in RESP2.
    pub(crate) fn set(&mut self, len: usize) {
        match self.version {
            RespVersion::Resp2 => self.head(b'*', len),
            RespVersion::Resp3 => self.head(b'~', len),
        }
    }

    /// Names and values of any depth. Numbers are whole.
    pub(crate) fn value(&mut self, value: &Value) {
        match value {
            Value::Null => self.null(),
            Value::Bool(value) => self.boolean(*value),
            Value::Number(number) => self.integer(number.as_i64().unwrap_or(i64::MAX)),
            Value::String(text) => self.bulk(text.as_bytes()),
            Value::Array(values) => {
                self.array(values.len());
                values.iter().for_each(|value| self.value(value));
            }
            Value::Object(members) => {
                self.map(members.len());
                for (name, value) in members {
                    self.bulk(name.as_bytes());
                    self.value(value);
                }
            }
        }
    }

    /// A number, or null.
    pub(crate) fn number_or_null(&mut self, number: Option<u64>) {
        match number {
            Some(number) => self.count(number),
            None => self.null(),
        }
    }

    /// Bytes that are encoded already.
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    fn head(&mut self, kind: u8, len: usize) {
        self.out.push(kind);
        self.digits(i64::try_from(len).unwrap_or(i64::MAX));
    }

    #[inline]
    fn digits(&mut self, value: i64) {
        // Most numbers are small.
        if let 0..=9 = value {
            self.out.extend_from_slice(&[b'0' + value as u8, b'\r', b'\n']);
        } else {
            self.line(itoa::Buffer::new().format(value).as_bytes());
        }
    }

    #[inline]
    fn line(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
        self.out.extend_from_slice(b"\r\n");
    }
}
