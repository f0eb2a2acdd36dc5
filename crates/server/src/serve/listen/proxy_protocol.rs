//! The PROXY protocol, versions 1 and 2: a load balancer sends its client's address at the start of a connection.
//!
//! The header is read to its last byte and not further, because a TLS handshake or a request follows it.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tokio::io::{AsyncRead, AsyncReadExt};

/// The first bytes of a header of version 2.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// The first bytes of a header of version 1.
const PREFIX: &[u8] = b"PROXY ";
/// The part of a header of version 2 that has a fixed length.
const FIXED: usize = 16;
/// Longest header of version 1, as its specification says.
const TEXT_MAX: usize = 107;
/// Longest part of a header of version 2 that follows the fixed one: addresses and additional fields.
const REST_MAX: usize = 4_096;

/// Who connected to the load balancer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    /// A client with this address, in canonical form.
    Client(IpAddr),
    /// The load balancer itself, for example a health check, or a client whose address it does not know.
    Unknown,
}

/// What the bytes so far are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Progress {
    /// The header has at least this many more bytes.
    Need(usize),
    Complete(Source),
}

/// Why the bytes are not a header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum HeaderError {
    #[error("the connection does not begin with a PROXY protocol header")]
    Missing,
    #[error("the PROXY protocol header is longer than the maximum")]
    TooLong,
    #[error("invalid PROXY protocol header")]
    Invalid,
}

/// Reads a header, and no byte after it.
pub(crate) async fn read<T: AsyncRead + Unpin>(stream: &mut T) -> io::Result<Source> {
    let mut bytes = Vec::with_capacity(TEXT_MAX);
    loop {
        match progress(&bytes).map_err(io::Error::other)? {
            Progress::Complete(source) => return Ok(source),
            Progress::Need(more) => {
                let begin = bytes.len();
                bytes.resize(begin + more, 0);
                stream.read_exact(&mut bytes[begin..]).await?;
            }
        }
    }
}

/// Parses the bytes so far. They must not be longer than what was needed before.
pub(crate) fn progress(bytes: &[u8]) -> Result<Progress, HeaderError> {
    match bytes.first_chunk::<12>() {
        // The shortest header is longer than this.
        None => Ok(Progress::Need(SIGNATURE.len() - bytes.len())),
        Some(SIGNATURE) => binary(bytes),
        Some(_) if bytes.starts_with(PREFIX) => text(bytes),
        Some(_) => Err(HeaderError::Missing),
    }
}

/// `PROXY TCP4 SOURCE DESTINATION PORT PORT`, or `PROXY UNKNOWN` and anything, and the end of a line.
fn text(bytes: &[u8]) -> Result<Progress, HeaderError> {
    let Some(line) = bytes.strip_suffix(b"\r\n") else {
        let needed = if bytes.ends_with(b"\r") { 1 } else { 2 };
        let is_too_long = bytes.len() + needed > TEXT_MAX;
        return if is_too_long { Err(HeaderError::TooLong) } else { Ok(Progress::Need(needed)) };
    };
    let line = str::from_utf8(line).map_err(|_| HeaderError::Invalid)?;
    if line.contains(['\r', '\n']) {
        return Err(HeaderError::Invalid);
    }
    let words: Vec<&str> = line.split(' ').collect();
    let source = match words.as_slice() {
        ["PROXY", "UNKNOWN", ..] => Some(Source::Unknown),
        ["PROXY", "TCP4", source, destination, ports @ ..] => client::<Ipv4Addr>(source, destination, ports),
        ["PROXY", "TCP6", source, destination, ports @ ..] => client::<Ipv6Addr>(source, destination, ports),
        _ => None,
    };
    source.map(Progress::Complete).ok_or(HeaderError::Invalid)
}

fn client<A: std::str::FromStr + Into<IpAddr>>(
    source: &str,
    destination: &str,
    ports: &[&str],
) -> Option<Source> {
    let address = source.parse::<A>().ok()?.into();
    destination.parse::<A>().ok()?;
    let is_port = |port: &&str| port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok();
    (ports.len() == 2 && ports.iter().all(is_port)).then(|| Source::Client(address.to_canonical()))
}

/// Signature, version and command, family, length in two bytes, addresses, additional fields, which are ignored.
fn binary(bytes: &[u8]) -> Result<Progress, HeaderError> {
    let Some(&[version_command, family, high, low]) = bytes.get(SIGNATURE.len()..FIXED) else {
        return Ok(Progress::Need(FIXED - bytes.len()));
    };
    let length = usize::from(u16::from_be_bytes([high, low]));
    if length > REST_MAX {
        return Err(HeaderError::TooLong);
    }
    let rest = bytes.get(FIXED..).unwrap_or_default();
    if rest.len() < length {
        return Ok(Progress::Need(length - rest.len()));
    }
    let source = match (version_command, family) {
        // A command of the load balancer itself.
        (0x20, _) => Some(Source::Unknown),
        // TCP over IPv4: two addresses, two ports.
        (0x21, 0x11) => rest.first_chunk::<12>().map(|_| first_address::<4>(rest)),
        // TCP over IPv6.
        (0x21, 0x21) => rest.first_chunk::<36>().map(|_| first_address::<16>(rest)),
        // Unspecified, or a Unix socket.
        (0x21, 0x00 | 0x31) => Some(Source::Unknown),
        _ => None,
    };
    source.map(Progress::Complete).ok_or(HeaderError::Invalid)
}

fn first_address<const N: usize>(rest: &[u8]) -> Source
where
    IpAddr: From<[u8; N]>,
{
    match rest.first_chunk::<N>() {
        Some(address) => Source::Client(IpAddr::from(*address).to_canonical()),
        None => Source::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(bytes: &[u8]) -> Result<Source, HeaderError> {
        let mut length = 0;
        loop {
            match progress(&bytes[..length])? {
                Progress::Complete(source) => {
                    assert_eq!(length, bytes.len(), "bytes after the header are left alone");
                    return Ok(source);
                }
                Progress::Need(more) => length += more,
            }
            if length > bytes.len() {
                return Err(HeaderError::Missing);
            }
        }
    }

    fn binary(version_command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let length = (rest.len() as u16).to_be_bytes();
        [&SIGNATURE[..], &[version_command, family], &length, rest].concat()
    }

    #[test]
    fn headers_of_both_versions_are_parsed() {
        let client = |text: &str| Ok(Source::Client(text.parse().expect("an address")));
        let v4 = [203, 0, 113, 7, 10, 0, 0, 1, 200, 1, 31, 144];
        let mut v6 = [0; 36];
        v6[..16].copy_from_slice(&"2001:db8::7".parse::<Ipv6Addr>().expect("an address").octets());
        let mut mapped = [0; 36];
        mapped[..16].copy_from_slice(&Ipv4Addr::new(203, 0, 113, 7).to_ipv6_mapped().octets());
        let with_fields = [&v4[..], &[4, 0, 1, 0]].concat();
        for (bytes, expected) in [
            (b"PROXY TCP4 203.0.113.7 10.0.0.1 51201 8080\r\n".to_vec(), client("203.0.113.7")),
            (b"PROXY TCP6 2001:db8::7 ::1 51201 8080\r\n".to_vec(), client("2001:db8::7")),
            (b"PROXY TCP6 ::ffff:203.0.113.7 ::1 1 65535\r\n".to_vec(), client("203.0.113.7")),
            (b"PROXY UNKNOWN\r\n".to_vec(), Ok(Source::Unknown)),
            (b"PROXY UNKNOWN ::1 ::1 1 2\r\n".to_vec(), Ok(Source::Unknown)),
            (binary(0x21, 0x11, &v4), client("203.0.113.7")),
            (binary(0x21, 0x11, &with_fields), client("203.0.113.7")),
            (binary(0x21, 0x21, &v6), client("2001:db8::7")),
            (binary(0x21, 0x21, &mapped), client("203.0.113.7")),
            (binary(0x20, 0x00, &[]), Ok(Source::Unknown)),
            (binary(0x20, 0x11, &v4), Ok(Source::Unknown)),
            (binary(0x21, 0x00, &[1, 2, 3]), Ok(Source::Unknown)),
            (binary(0x21, 0x31, &[0; 216]), Ok(Source::Unknown)),
        ] {
            assert_eq!(parse(&bytes), expected, "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn invalid_headers_are_errors() {
        let long = format!("PROXY UNKNOWN {}\r\n", "x".repeat(TEXT_MAX));
        for (bytes, expected) in [
            (b"GET / HTTP/1.1\r\n".to_vec(), HeaderError::Missing),
            (b"*1\r\n$4\r\nPING\r\n".to_vec(), HeaderError::Missing),
            (b"proxy TCP4 1.2.3.4 1.2.3.4 1 2\r\n".to_vec(), HeaderError::Missing),
            (long.into_bytes(), HeaderError::TooLong),
            (binary(0x21, 0x11, &[0; REST_MAX + 1]), HeaderError::TooLong),
            (b"PROXY TCP4 1.2.3.4 1.2.3.4 1\r\n".to_vec(), HeaderError::Invalid),
            (b"PROXY TCP4 1.2.3.4 1.2.3.4 1 2 3\r\n".to_vec(), HeaderError::Invalid),
            (b"PROXY TCP4  1.2.3.4 1.2.3.4 1 2\r\n".to_vec(), HeaderError::Invalid),
            (b"PROXY TCP4 ::1 ::1 1 2\r\n".to_vec(), HeaderError::Invalid),
            (b"PROXY TCP6 1.2.3.4 1.2.3.4 1 2\r\n".to_vec(), HeaderError::Invalid),
            (b"PROXY TCP4 1.2.3.4 1.2.3.4 +1 2\r\n".to_vec(), HeaderError::Invalid),
            (b"PROXY TCP4 1.2.3.4 1.2.3.4 1 65536\r\n".to_vec(), HeaderError::Invalid),
            (b"PROXY UDP4 1.2.3.4 1.2.3.4 1 2\r\n".to_vec(), HeaderError::Invalid),
            (b"PROXY TCP4 1.2.3.4\n1.2.3.4 1 2\r\n".to_vec(), HeaderError::Invalid),
            (binary(0x11, 0x11, &[0; 12]), HeaderError::Invalid),
            (binary(0x22, 0x11, &[0; 12]), HeaderError::Invalid),
            (binary(0x21, 0x12, &[0; 12]), HeaderError::Invalid),
            (binary(0x21, 0x11, &[0; 11]), HeaderError::Invalid),
            (binary(0x21, 0x21, &[0; 35]), HeaderError::Invalid),
        ] {
            assert_eq!(parse(&bytes), Err(expected), "{}", bytes.escape_ascii());
        }
    }
}
