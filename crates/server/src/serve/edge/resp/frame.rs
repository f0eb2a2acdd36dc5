//! Parses commands: arrays of strings, and inline commands, which people type. It works in place and allocates nothing,
//! whatever lengths the input claims.

use std::fmt;
use std::ops::Range;

use crate::serve::edge::lossless_text::lossless_text;
use crate::serve::edge::request::ATTRIBUTES_MAX;

/// Options of a command, each with its value.
pub(crate) const OPTIONS_MAX: usize = 4;
/// Strings of a command: its name, the attributes and the options.
pub(crate) const WORDS_MAX: usize = 1 + 2 * ATTRIBUTES_MAX + 2 * OPTIONS_MAX;

/// Bytes of a command.
const COMMAND_BYTES_MAX: usize = 64 * 1024;

/// The size limits of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Limits {
    /// Bytes of the whole command.
    pub(crate) command: usize,
    /// Bytes of one string.
    pub(crate) string: usize,
    /// Strings, the name of the command included.
    pub(crate) words: usize,
    /// Bytes of an inline command.
    pub(crate) line: usize,
}

impl Limits {
    /// For callers with any scope. A string may be longer than a value, so that the value gets the error of its limit.
    pub(crate) const AUTHENTICATED: Limits =
        Limits { command: COMMAND_BYTES_MAX, string: COMMAND_BYTES_MAX, words: WORDS_MAX, line: 1024 };
    /// For callers without a scope: enough to send a token.
    pub(crate) const ANONYMOUS: Limits = Limits { command: 512, string: 128, words: 8, line: 256 };
}

/// The positions of the strings of one command. Reused for every command.
#[derive(Clone)]
pub(crate) struct WordSpans {
    at: [(u32, u32); WORDS_MAX],
    len: usize,
}

/// One command: its bytes, and the positions of its strings.
#[derive(Clone, Copy)]
pub(crate) struct Words<'b, 'p> {
    bytes: &'b [u8],
    spans: &'p [(u32, u32)],
}

/// The strings of one command, as text. Bytes that are not UTF-8 became characters, without loss.
pub(crate) struct LosslessWords {
    text: String,
    spans: Vec<(u32, u32)>,
}

/// Invalid bytes. The next command cannot be found after them, so the connection is closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FrameError {
    /// Invalid array count or bulk length.
    Count {
        max: usize,
    },
    Length {
        max: usize,
    },
    /// A string that does not start with `$`.
    NotAString {
        found: u8,
    },
    /// A string that is longer than its length.
    NoEnd,
    TooLong {
        max: usize,
    },
    LineTooLong {
        max: usize,
    },
    /// A quote in an inline command that is not closed, or closed inside a word.
    Quotes,
    Http,
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Protocol error: ")?;
        match *self {
            FrameError::Count { max } => {
                write!(
                    f,
                    "invalid multibulk length; a command has at most {max} strings here, like *1 and CRLF"
                )
            }
            FrameError::Length { max } => {
                write!(f, "invalid bulk length; a string has 0 to {max} bytes here, like $4 and CRLF")
            }
            FrameError::NotAString { found } => {
                let found = found.escape_ascii();
                write!(f, "expected '$', got '{found}'; every part of a command is a string")
            }
            FrameError::NoEnd => f.write_str("expected CRLF after a string; its length is that of its bytes"),
            FrameError::TooLong { max } => write!(f, "too big command; it has at most {max} bytes here"),
            FrameError::LineTooLong { max } => {
                write!(f, "too big inline request; a line has at most {max} bytes here")
            }
            FrameError::Quotes => f.write_str("unbalanced quotes in request; close them before a space"),
            FrameError::Http => f.write_str("this is HTTP, which is served on another port"),
        }
    }
}

impl WordSpans {
    pub(crate) const fn new() -> WordSpans {
        WordSpans { at: [(0, 0); WORDS_MAX], len: 0 }
    }

    /// The strings of the command whose bytes these are.
    pub(crate) fn words<'b>(&self, bytes: &'b [u8]) -> Words<'b, '_> {
        Words { bytes, spans: &self.at[..self.len] }
    }

    fn push(&mut self, span: Range<usize>) {
        // Commands are shorter than 4 GiB, and there are no more strings than the limit.
        if let Some(free) = self.at.get_mut(self.len) {
            *free = (span.start as u32, span.end as u32);
            self.len += 1;
        }
    }
}

impl<'b, 'p> Words<'b, 'p> {
    pub(crate) const fn len(&self) -> usize {
        self.spans.len()
    }

    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<&'b [u8]> {
        let &(start, end) = self.spans.get(index)?;
        self.bytes.get(start as usize..end as usize)
    }

    /// The strings from `start` on.
    pub(crate) fn from(&self, start: usize) -> Words<'b, 'p> {
        Words { bytes: self.bytes, spans: self.spans.get(start..).unwrap_or_default() }
    }

    /// The strings before the last `count`.
    pub(crate) fn without_last(&self, count: usize) -> Words<'b, 'p> {
        let end = self.spans.len().saturating_sub(count);
        Words { bytes: self.bytes, spans: &self.spans[..end] }
    }

    pub(crate) fn iter(self) -> impl DoubleEndedIterator<Item = &'b [u8]> + use<'b, 'p> {
        (0..self.len()).filter_map(move |index| self.get(index))
    }
}

impl LosslessWords {
    pub(crate) fn new(words: Words<'_, '_>) -> LosslessWords {
        let (mut text, mut spans) = (String::new(), Vec::with_capacity(words.len()));
        for word in words.iter() {
            let start = text.len() as u32;
            text.push_str(&lossless_text(word));
            // A character is at most four times as long as its byte, so these fit.
            spans.push((start, text.len() as u32));
        }
        LosslessWords { text, spans }
    }

    pub(crate) fn words(&self) -> Words<'_, '_> {
        Words { bytes: self.text.as_bytes(), spans: &self.spans }
    }
}

/// Finds the first command. If it is complete, returns its length and fills `spans`; an empty command has no strings. Quotes
/// of inline commands are removed in place.
pub(crate) fn next(
    input: &mut [u8],
    limits: &Limits,
    spans: &mut WordSpans,
) -> Result<Option<usize>, FrameError> {
    spans.len = 0;
    let found = match input.first() {
        None => return Ok(None),
        Some(b'*') => array(input, limits, spans),
        Some(_) => line(input, limits, spans),
    }?;
    match found {
        Some(end) if end <= limits.command => Ok(Some(end)),
        None if input.len() < limits.command => Ok(None),
        _ => Err(FrameError::TooLong { max: limits.command }),
    }
}

#[inline]
fn array(input: &[u8], limits: &Limits, spans: &mut WordSpans) -> Result<Option<usize>, FrameError> {
    let wrong = FrameError::Count { max: limits.words };
    let Some((count, mut at)) = number(input, 1, wrong)? else { return Ok(None) };
    // Redis ignores an empty or absent array.
    let count = count.max(0) as usize;
    if count > limits.words {
        return Err(wrong);
    }
    let wrong = FrameError::Length { max: limits.string };
    for _ in 0..count {
        match input.get(at) {
            None => return Ok(None),
            Some(b'$') => (),
            Some(&found) => return Err(FrameError::NotAString { found }),
        }
        let Some((length, start)) = number(input, at + 1, wrong)? else { return Ok(None) };
        let length = usize::try_from(length).ok().filter(|&length| length <= limits.string).ok_or(wrong)?;
        let end = start + length;
        match input.get(end..) {
            Some([b'\r', b'\n', ..]) => (),
            None | Some([] | [b'\r']) => return Ok(None),
            Some(_) => return Err(FrameError::NoEnd),
        }
        spans.push(start..end);
        at = end + 2;
    }
    Ok(Some(at))
}

/// The number at `at`, and the start of the next line.
#[inline]
fn number(input: &[u8], at: usize, wrong: FrameError) -> Result<Option<(i64, usize)>, FrameError> {
    // Almost all numbers have one or two digits.
    let digit = |byte: u8| i64::from(byte - b'0');
    match input.get(at..) {
        Some(&[one @ b'0'..=b'9', b'\r', b'\n', ..]) => Ok(Some((digit(one), at + 3))),
        Some(&[ten @ b'0'..=b'9', one @ b'0'..=b'9', b'\r', b'\n', ..]) => {
            Ok(Some((10 * digit(ten) + digit(one), at + 4)))
        }
        _ => any_number(input, at, wrong),
    }
}

/// Parses all other numbers. More digits than any limit has are invalid before their line ends.
#[inline(never)]
fn any_number(input: &[u8], at: usize, wrong: FrameError) -> Result<Option<(i64, usize)>, FrameError> {
    const DIGITS_MAX: usize = 9;
    let negative = input.get(at) == Some(&b'-');
    let start = at + usize::from(negative);
    let mut value = 0;
    let mut end = start;
    loop {
        match input.get(end) {
            None => return Ok(None),
            Some(digit @ b'0'..=b'9') if end - start < DIGITS_MAX => {
                value = value * 10 + i64::from(digit - b'0')
            }
            Some(b'\r') if end > start => break,
            Some(_) => return Err(wrong),
        }
        end += 1;
    }
    match input.get(end + 1) {
        None => Ok(None),
        Some(b'\n') => Ok(Some((if negative { -value } else { value }, end + 2))),
        Some(_) => Err(wrong),
    }
}

/// An inline command: words between spaces or in quotes.
fn line(input: &mut [u8], limits: &Limits, spans: &mut WordSpans) -> Result<Option<usize>, FrameError> {
    let too_long = FrameError::LineTooLong { max: limits.line };
    let Some(end) = input.iter().take(limits.line).position(|&byte| byte == b'\n') else {
        return if input.len() < limits.line { Ok(None) } else { Err(too_long) };
    };
    let mut at = 0;
    while let Some(&byte) = input[..end].get(at) {
        if byte.is_ascii_whitespace() {
            at += 1;
            continue;
        }
        if spans.len == limits.words {
            return Err(FrameError::Count { max: limits.words });
        }
        let (word, after) = word(&mut input[..end], at)?;
        if word.len() > limits.string {
            return Err(FrameError::Length { max: limits.string });
        }
        // A browser that a foreign page sent here must not reach the commands in its form.
        if spans.len == 0 && is_http(&input[word.clone()]) {
            return Err(FrameError::Http);
        }
        spans.push(word);
        at = after;
    }
    Ok(Some(end + 1))
}

fn is_http(word: &[u8]) -> bool {
    word.eq_ignore_ascii_case(b"POST") || word.eq_ignore_ascii_case(b"Host:")
}

/// The word at `start`, and the position after it. Its quotes are removed in place.
fn word(line: &mut [u8], start: usize) -> Result<(Range<usize>, usize), FrameError> {
    let (mut at, mut end) = (start, start);
    let mut quote = None;
    while let Some(&byte) = line.get(at) {
        let (written, taken) = match (quote, byte) {
            (None, byte) if byte.is_ascii_whitespace() => break,
            (None, b'"' | b'\'') if at == start => {
                quote = Some(byte);
                at += 1;
                continue;
            }
            (None, b'"' | b'\'') => return Err(FrameError::Quotes),
            (Some(open), byte) if byte == open => {
                let closed = line.get(at + 1).is_none_or(u8::is_ascii_whitespace);
                return if closed { Ok((start..end, at + 1)) } else { Err(FrameError::Quotes) };
            }
            (Some(b'"'), b'\\') => escaped(&line[at + 1..]).ok_or(FrameError::Quotes)?,
            (Some(_), b'\\') if line.get(at + 1) == Some(&b'\'') => (b'\'', 2),
            (_, byte) => (byte, 1),
        };
        line[end] = written;
        end += 1;
        at += taken;
    }
    if quote.is_some() { Err(FrameError::Quotes) } else { Ok((start..end, at)) }
}

/// The byte that a backslash and these bytes stand for, and the length of the escape.
fn escaped(after: &[u8]) -> Option<(u8, usize)> {
    let hex = |digit: &u8| char::from(*digit).to_digit(16).map(|digit| digit as u8);
    match after {
        [b'x', high, low, ..] if hex(high).is_some() && hex(low).is_some() => {
            Some((hex(high)? << 4 | hex(low)?, 4))
        }
        [b'n', ..] => Some((b'\n', 2)),
        [b'r', ..] => Some((b'\r', 2)),
        [b't', ..] => Some((b'\t', 2)),
        [b'b', ..] => Some((0x08, 2)),
        [b'a', ..] => Some((0x07, 2)),
        &[other, ..] => Some((other, 2)),
        [] => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fast_path_parses_lengths_as_the_general_one() {
        let wrong = FrameError::Length { max: 1 };
        let mut inputs = vec![Vec::new()];
        for _ in 0..5 {
            let longer =
                inputs.iter().flat_map(|input| b"09-+:\r\n".map(|byte| [&input[..], &[byte]].concat()));
            inputs = longer.collect();
            for input in &inputs {
                assert_eq!(number(input, 0, wrong), any_number(input, 0, wrong), "{input:?}");
            }
        }
    }
}
