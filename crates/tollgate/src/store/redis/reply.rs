//! What Redis answers on the wire (RESP2), read from bytes that may have come in part.

use std::sync::Arc;

use super::error::RedisError;

/// One answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reply<'b> {
    /// A status, a number as text, or a string; None if there is no value.
    Value(Option<&'b [u8]>),
    /// An error, whole.
    Error(Arc<str>),
}

/// No answer of ours is longer: a batch of 64 Plans of 255 items fits.
const LENGTH_MAX: usize = 1 << 20;

/// The answer at the front of `bytes` and its length there, or None if it has not come whole.
pub(super) fn parse(bytes: &[u8]) -> Result<Option<(Reply<'_>, usize)>, RedisError> {
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
        Some(b'$') if line == b"-1" => Ok(Some((Reply::Value(None), after))),
        Some(b'$') => {
            let length = std::str::from_utf8(line).ok().and_then(|text| text.parse::<usize>().ok());
            let Some(length) = length.filter(|&length| length <= LENGTH_MAX) else {
                return Err(RedisError::Nonsense("a length is no number, or too large"));
            };
            let Some(rest) = bytes.get(after..after + length + 2) else { return Ok(None) };
            match rest.split_at(length) {
                (value, b"\r\n") => Ok(Some((Reply::Value(Some(value)), after + length + 2))),
                _ => Err(RedisError::Nonsense("a string does not end where it says")),
            }
        }
        _ => Err(RedisError::Nonsense("an answer of a type that none of our commands gives")),
    }
}

/// Writes a command's head: how many words it has.
pub(super) fn words(out: &mut Vec<u8>, count: usize) {
    out.push(b'*');
    line(out, count);
}

/// Writes one word.
pub(super) fn word(out: &mut Vec<u8>, word: &[u8]) {
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
    fn nonsense_is_refused_and_nothing_is_allocated_for_it() {
        for bytes in
            [&b"$99999999999999\r\n"[..], b"$x\r\n", b"*2\r\n", b"\r\n", b"$1\r\nabc\r\n", b"HTTP/1.1\r\n"]
        {
            assert!(parse(bytes).is_err(), "{bytes:?}");
        }
    }
}
