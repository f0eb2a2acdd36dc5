//! Answers as they go over the wire, in the second and in the third version of the protocol.

use std::fmt::{Display, Write as _};

/// The version of the protocol that a client asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Protocol {
    #[default]
    Resp2,
    Resp3,
}

/// Appends answers to what is to be sent.
pub(crate) struct Reply<'o> {
    out: &'o mut Vec<u8>,
    protocol: Protocol,
}

impl<'o> Reply<'o> {
    pub(crate) const fn new(out: &'o mut Vec<u8>, protocol: Protocol) -> Reply<'o> {
        Reply { out, protocol }
    }

    pub(crate) const fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// The same in another version.
    pub(crate) const fn speaking(&mut self, protocol: Protocol) -> Reply<'_> {
        Reply { out: self.out, protocol }
    }

    /// A short text of ours.
    pub(crate) fn simple(&mut self, text: &'static str) {
        self.out.push(b'+');
        self.line(text.as_bytes());
    }

    /// An error: its code, a word in capitals, and what to do about it.
    pub(crate) fn error(&mut self, code: &'static str, what: impl Display) {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let written = write!(text, "-{code} {what}");
        debug_assert!(written.is_ok());
        // An error ends with its line.
        text.retain(|c| !c.is_control());
        self.line(text.as_bytes());
    }

    pub(crate) fn integer(&mut self, value: i64) {
        self.out.push(b':');
        self.digits(value);
    }

    /// A number that is never above 2^53.
    pub(crate) fn count(&mut self, value: u64) {
        self.integer(i64::try_from(value).unwrap_or(i64::MAX));
    }

    pub(crate) fn bulk(&mut self, bytes: &[u8]) {
        self.head(b'$', bytes.len());
        self.line(bytes);
    }

    pub(crate) fn null(&mut self) {
        self.line(match self.protocol {
            Protocol::Resp2 => b"$-1",
            Protocol::Resp3 => b"_",
        });
    }

    /// Yes or no: 1 or 0 where there is no such type.
    pub(crate) fn boolean(&mut self, value: bool) {
        self.line(match (self.protocol, value) {
            (Protocol::Resp2, true) => b":1",
            (Protocol::Resp2, false) => b":0",
            (Protocol::Resp3, true) => b"#t",
            (Protocol::Resp3, false) => b"#f",
        });
    }

    /// The beginning of so many answers in a row.
    pub(crate) fn array(&mut self, len: usize) {
        self.head(b'*', len);
    }

    /// The beginning of so many names, each with its value: in a row where there is no such type.
    pub(crate) fn map(&mut self, len: usize) {
        match self.protocol {
            Protocol::Resp2 => self.head(b'*', 2 * len),
            Protocol::Resp3 => self.head(b'%', len),
        }
    }

    /// The beginning of so many different answers.
    pub(crate) fn set(&mut self, len: usize) {
        match self.protocol {
            Protocol::Resp2 => self.head(b'*', len),
            Protocol::Resp3 => self.head(b'~', len),
        }
    }

    /// Bytes that are an answer, or a part of one, already.
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
