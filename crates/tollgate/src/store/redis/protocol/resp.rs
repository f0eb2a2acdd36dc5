//! The Redis protocol (RESP2): writes commands, and parses replies from bytes that may be incomplete.

use std::sync::Arc;

use crate::store::redis::error::RedisError;

/// One reply.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Reply<'b> {
    /// A status, an integer as text, or a string. None if it is null.
    Value(Option<&'b [u8]>),
    /// An array. Only the commands of sentinels and clusters return one.
    Array(Vec<Reply<'b>>),
    /// An error: code and text.
    Error(Arc<str>),
}

/// Longest string or line. A batch of 64 Plans of 255 items fits.
const LENGTH_MAX: usize = 1 << 20;
/// Deepest nesting of arrays. `CLUSTER SLOTS` needs four levels on the newest servers.
const DEPTH_MAX: usize = 5;
/// Longest array. A cluster whose 16,384 hash slots are all in separate ranges fits.
const ELEMENTS_MAX: usize = 1 << 16;

/// Parses the reply at the front of `bytes`. Returns it with its length, or None if it is incomplete.
pub(crate) fn parse(bytes: &[u8]) -> Result<Option<(Reply<'_>, usize)>, RedisError> {
    parse_nested(bytes, DEPTH_MAX)
}

fn parse_nested(bytes: &[u8], depth: usize) -> Result<Option<(Reply<'_>, usize)>, RedisError> {
    let Some(end) = bytes.windows(2).position(|pair| pair == b"\r\n") else {
        return if bytes.len() > LENGTH_MAX {
            Err(RedisError::UnexpectedReply("a line is too long"))
        } else {
            Ok(None)
        };
    };
    let (line, after) = (&bytes[1.min(end)..end], end + 2);
    match bytes.first() {
        Some(b'+' | b':') => Ok(Some((Reply::Value(Some(line)), after))),
        Some(b'-') => Ok(Some((Reply::Error(String::from_utf8_lossy(line).into()), after))),
        Some(b'$' | b'*') if line == b"-1" => Ok(Some((Reply::Value(None), after))),
        Some(b'$') => {
            let length = parse_length(line, LENGTH_MAX)?;
            let Some(rest) = bytes.get(after..after + length + 2) else { return Ok(None) };
            match rest.split_at(length) {
                (value, b"\r\n") => Ok(Some((Reply::Value(Some(value)), after + length + 2))),
                _ => Err(RedisError::UnexpectedReply("a string does not have its stated length")),
            }
        }
        Some(b'*') if depth > 0 => {
            let (mut elements, mut at) = (Vec::new(), after);
            for _ in 0..parse_length(line, ELEMENTS_MAX)? {
                let Some((element, length)) = parse_nested(&bytes[at..], depth - 1)? else { return Ok(None) };
                elements.push(element);
                at += length;
            }
            Ok(Some((Reply::Array(elements), at)))
        }
        _ => Err(RedisError::UnexpectedReply("unknown type of reply")),
    }
}

fn parse_length(line: &[u8], max: usize) -> Result<usize, RedisError> {
    let length = std::str::from_utf8(line).ok().and_then(|text| text.parse::<usize>().ok());
    length
        .filter(|&length| length <= max)
        .ok_or(RedisError::UnexpectedReply("a length is invalid or too large"))
}

impl<'b> Reply<'b> {
    /// The elements, if this is an array.
    pub(crate) fn elements(&self) -> Option<&[Reply<'b>]> {
        match self {
            Reply::Array(elements) => Some(elements),
            _ => None,
        }
    }

    /// The value as text, if it is UTF-8.
    pub(crate) fn text(&self) -> Option<&'b str> {
        match self {
            Reply::Value(Some(bytes)) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }

    /// The value as a number, if it is one.
    pub(crate) fn number<N: std::str::FromStr>(&self) -> Option<N> {
        self.text()?.parse().ok()
    }
}

/// Writes a command.
pub(crate) fn write_command(out: &mut Vec<u8>, arguments: &[&[u8]]) {
    write_array_header(out, arguments.len());
    arguments.iter().for_each(|argument| write_bulk_string(out, argument));
}

/// Writes the header of a command with this many arguments, its name included.
pub(crate) fn write_array_header(out: &mut Vec<u8>, length: usize) {
    out.push(b'*');
    write_number_line(out, length);
}

/// Writes one argument.
pub(crate) fn write_bulk_string(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'$');
    write_number_line(out, bytes.len());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

fn write_number_line(out: &mut Vec<u8>, number: usize) {
    out.extend_from_slice(number.to_string().as_bytes());
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incomplete_strings_parse_to_none() {
        let complete = b"$5\r\nhello\r\n";
        for end in 0..complete.len() {
            assert_eq!(parse(&complete[..end]).expect("valid"), None, "{end} bytes");
        }
        assert_eq!(parse(complete).expect("valid"), Some((Reply::Value(Some(b"hello")), 11)));
    }

    #[test]
    fn errors_integers_and_null_strings_are_parsed() {
        let error = Reply::Error("NOSCRIPT no".into());
        assert_eq!(parse(b"-NOSCRIPT no\r\n+x").expect("valid"), Some((error, 14)));
        assert_eq!(parse(b":42\r\n").expect("valid"), Some((Reply::Value(Some(b"42")), 5)));
        assert_eq!(parse(b"$-1\r\n").expect("valid"), Some((Reply::Value(None), 5)));
    }

    #[test]
    fn nested_arrays_are_parsed_and_incomplete_ones_parse_to_none() {
        let bytes = b"*3\r\n:1\r\n*2\r\n$1\r\na\r\n$-1\r\n*-1\r\nrest";
        let inner = Reply::Array(vec![Reply::Value(Some(b"a")), Reply::Value(None)]);
        let array = Reply::Array(vec![Reply::Value(Some(b"1")), inner, Reply::Value(None)]);
        assert_eq!(parse(bytes).expect("valid"), Some((array, bytes.len() - 4)));
        for end in 0..bytes.len() - 4 {
            assert_eq!(parse(&bytes[..end]).expect("valid"), None, "{end} bytes");
        }
    }

    #[test]
    fn invalid_lengths_types_and_depths_are_errors() {
        for bytes in [
            &b"$99999999999999\r\n"[..],
            b"$x\r\n",
            b"*99999\r\n",
            b"\r\n",
            b"$1\r\nabc\r\n",
            b"HTTP/1.1\r\n",
        ] {
            assert!(parse(bytes).is_err(), "{bytes:?}");
        }
        assert!(parse(&b"*1\r\n".repeat(50)).is_err(), "too deep");
    }
}
