//! What Redis answers on the wire (RESP2), read from bytes that may have come in part.

use std::sync::Arc;

use crate::store::redis::error::RedisError;

/// One answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Reply<'b> {
    /// A status, a number as text, or a string; None if there is no value.
    Value(Option<&'b [u8]>),
    /// Several answers in one: only discovery asks for such.
    List(Vec<Reply<'b>>),
    /// An error, whole.
    Error(Arc<str>),
}

/// No answer of ours is longer: a batch of 64 Plans of 255 items fits.
const LENGTH_MAX: usize = 1 << 20;
/// Lists in lists: where the slots of a cluster are is four deep in the newest servers.
const DEPTH_MAX: usize = 5;
/// A cluster whose every slot is apart has so many parts, and some to spare.
const PARTS_MAX: usize = 1 << 16;

/// The answer at the front of `bytes` and its length there, or None if it has not come whole.
pub(crate) fn parse(bytes: &[u8]) -> Result<Option<(Reply<'_>, usize)>, RedisError> {
    parse_within(bytes, DEPTH_MAX)
}

fn parse_within(bytes: &[u8], depth: usize) -> Result<Option<(Reply<'_>, usize)>, RedisError> {
    let Some(end) = bytes.windows(2).position(|pair| pair == b"\r\n") else {
        return if bytes.len() > LENGTH_MAX {
            Err(RedisError::Nonsense("a line has no end"))
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
            let length = length(line, LENGTH_MAX)?;
            let Some(rest) = bytes.get(after..after + length + 2) else { return Ok(None) };
            match rest.split_at(length) {
                (value, b"\r\n") => Ok(Some((Reply::Value(Some(value)), after + length + 2))),
                _ => Err(RedisError::Nonsense("a string does not end where it says")),
            }
        }
        Some(b'*') if depth > 0 => {
            let (mut parts, mut at) = (Vec::new(), after);
            for _ in 0..length(line, PARTS_MAX)? {
                let Some((part, length)) = parse_within(&bytes[at..], depth - 1)? else { return Ok(None) };
                parts.push(part);
                at += length;
            }
            Ok(Some((Reply::List(parts), at)))
        }
        _ => Err(RedisError::Nonsense("an answer of a type that none of our commands gives")),
    }
}

fn length(line: &[u8], most: usize) -> Result<usize, RedisError> {
    let length = std::str::from_utf8(line).ok().and_then(|text| text.parse::<usize>().ok());
    length.filter(|&length| length <= most).ok_or(RedisError::Nonsense("a length is no number, or too large"))
}

impl<'b> Reply<'b> {
    /// The parts of a list.
    pub(crate) fn parts(&self) -> Option<&[Reply<'b>]> {
        match self {
            Reply::List(parts) => Some(parts),
            _ => None,
        }
    }

    /// A value as text.
    pub(crate) fn text(&self) -> Option<&'b str> {
        match self {
            Reply::Value(Some(bytes)) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }

    /// A value as a number.
    pub(crate) fn number<N: std::str::FromStr>(&self) -> Option<N> {
        self.text()?.parse().ok()
    }
}

/// Writes a whole command.
pub(crate) fn command(out: &mut Vec<u8>, said: &[&[u8]]) {
    words(out, said.len());
    said.iter().for_each(|said| word(out, said));
}

/// Writes a command's head: how many words it has.
pub(crate) fn words(out: &mut Vec<u8>, count: usize) {
    out.push(b'*');
    line(out, count);
}

/// Writes one word.
pub(crate) fn word(out: &mut Vec<u8>, word: &[u8]) {
    out.push(b'$');
    line(out, word.len());
    out.extend_from_slice(word);
    out.extend_from_slice(b"\r\n");
}

fn line(out: &mut Vec<u8>, number: usize) {
    out.extend_from_slice(number.to_string().as_bytes());
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_came_in_part_is_waited_for() {
        let whole = b"$5\r\nhello\r\n";
        for end in 0..whole.len() {
            assert_eq!(parse(&whole[..end]).expect("no nonsense"), None, "{end} bytes");
        }
        assert_eq!(parse(whole).expect("no nonsense"), Some((Reply::Value(Some(b"hello")), 11)));
    }

    #[test]
    fn errors_numbers_and_nothing() {
        let error = Reply::Error("NOSCRIPT no".into());
        assert_eq!(parse(b"-NOSCRIPT no\r\n+x").expect("no nonsense"), Some((error, 14)));
        assert_eq!(parse(b":42\r\n").expect("no nonsense"), Some((Reply::Value(Some(b"42")), 5)));
        assert_eq!(parse(b"$-1\r\n").expect("no nonsense"), Some((Reply::Value(None), 5)));
    }

    #[test]
    fn lists_hold_answers_and_lists() {
        let bytes = b"*3\r\n:1\r\n*2\r\n$1\r\na\r\n$-1\r\n*-1\r\nrest";
        let inner = Reply::List(vec![Reply::Value(Some(b"a")), Reply::Value(None)]);
        let list = Reply::List(vec![Reply::Value(Some(b"1")), inner, Reply::Value(None)]);
        assert_eq!(parse(bytes).expect("no nonsense"), Some((list, bytes.len() - 4)));
        for end in 0..bytes.len() - 4 {
            assert_eq!(parse(&bytes[..end]).expect("no nonsense"), None, "{end} bytes");
        }
    }

    #[test]
    fn nonsense_is_refused_and_nothing_is_allocated_for_it() {
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
