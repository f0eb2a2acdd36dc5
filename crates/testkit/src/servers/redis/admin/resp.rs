//! The Redis protocol (RESP2): parses replies and formats commands.

/// A reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    /// A short text such as `OK`.
    Simple(String),
    /// An error of the server.
    Error(String),
    /// A number.
    Integer(i64),
    /// Bytes.
    Bulk(Vec<u8>),
    /// An array of replies.
    Array(Vec<Value>),
    /// A null bulk string or null array.
    Nil,
}

/// The bytes are not a RESP2 reply.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not RESP2: {0}")]
pub struct Malformed(String);

impl Value {
    /// Parses the first reply in these bytes and returns its length, or `None` if it is incomplete.
    pub fn parse(bytes: &[u8]) -> Result<Option<(Value, usize)>, Malformed> {
        let mut reader = Reader { bytes, at: 0 };
        Ok(reader.value()?.map(|value| (value, reader.at)))
    }
}

/// Formats a command.
pub(crate) fn command(arguments: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
    for argument in arguments {
        bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        bytes.extend_from_slice(argument);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn value(&mut self) -> Result<Option<Value>, Malformed> {
        let Some(line) = self.line()? else { return Ok(None) };
        let (kind, rest) = line.split_at_checked(1).ok_or_else(|| Malformed("an empty line".to_owned()))?;
        match kind {
            "+" => Ok(Some(Value::Simple(rest.to_owned()))),
            "-" => Ok(Some(Value::Error(rest.to_owned()))),
            ":" => Ok(Some(Value::Integer(number(rest)?))),
            "$" => self.bulk(length(rest)?),
            "*" => self.array(length(rest)?),
            _ => Err(Malformed(format!("{line:?} begins no reply"))),
        }
    }

    fn bulk(&mut self, length: Option<usize>) -> Result<Option<Value>, Malformed> {
        let Some(length) = length else { return Ok(Some(Value::Nil)) };
        let rest = &self.bytes[self.at..];
        let (Some(bytes), Some(end)) = (rest.get(..length), rest.get(length..length + 2)) else {
            return Ok(None);
        };
        if end != b"\r\n" {
            return Err(Malformed(format!("{length} bytes that do not end there")));
        }
        self.at += length + 2;
        Ok(Some(Value::Bulk(bytes.to_vec())))
    }

    fn array(&mut self, length: Option<usize>) -> Result<Option<Value>, Malformed> {
        let Some(length) = length else { return Ok(Some(Value::Nil)) };
        let mut values = Vec::new();
        for _ in 0..length {
            let Some(value) = self.value()? else { return Ok(None) };
            values.push(value);
        }
        Ok(Some(Value::Array(values)))
    }

    /// Returns the text up to the next line end.
    fn line(&mut self) -> Result<Option<&'a str>, Malformed> {
        let rest = &self.bytes[self.at..];
        // Invalid input may have no line end at all.
        if let Some(first) = rest.first().filter(|first| !b"+-:$*".contains(first)) {
            return Err(Malformed(format!("byte {first} begins no reply")));
        }
        let Some(length) = rest.windows(2).position(|two| two == b"\r\n") else { return Ok(None) };
        self.at += length + 2;
        str::from_utf8(&rest[..length]).map(Some).map_err(|error| Malformed(error.to_string()))
    }
}

fn number(text: &str) -> Result<i64, Malformed> {
    text.parse().map_err(|error| Malformed(format!("{text:?}: {error}")))
}

/// Parses a length. `None` is the length of a null value.
fn length(text: &str) -> Result<Option<usize>, Malformed> {
    match number(text)? {
        -1 => Ok(None),
        length => match usize::try_from(length) {
            Ok(length) if length <= LENGTH_MAX => Ok(Some(length)),
            _ => Err(Malformed(format!("the length {length}"))),
        },
    }
}

/// Largest number of bytes or elements that a server announces.
const LENGTH_MAX: usize = 512 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_reply_is_parsed_and_the_rest_is_kept() {
        let bulk = |text: &str| Value::Bulk(text.into());
        let cases = [
            ("+OK\r\n", Value::Simple("OK".into())),
            ("-ERR no\r\n", Value::Error("ERR no".into())),
            (":-7\r\n", Value::Integer(-7)),
            ("$4\r\na\r\nb\r\n", bulk("a\r\nb")),
            ("$0\r\n\r\n", bulk("")),
            ("$-1\r\n", Value::Nil),
            ("*-1\r\n", Value::Nil),
            ("*0\r\n", Value::Array(vec![])),
            (
                "*2\r\n*1\r\n:1\r\n$1\r\na\r\n",
                Value::Array(vec![Value::Array(vec![Value::Integer(1)]), bulk("a")]),
            ),
        ];
        for (text, expected) in cases {
            for cut in 0..text.len() {
                assert_eq!(Value::parse(&text.as_bytes()[..cut]), Ok(None), "{text:?} cut at {cut}");
            }
            let followed = format!("{text}+next");
            assert_eq!(Value::parse(followed.as_bytes()), Ok(Some((expected, text.len()))), "{text:?}");
        }
    }

    #[test]
    fn an_invalid_reply_is_rejected() {
        for text in ["\r\n", "PING\r\n", "\u{16}\u{3}", "$x\r\n", "$-2\r\n", "$1\r\nabc", "$999999999999\r\n"]
        {
            assert!(Value::parse(text.as_bytes()).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_command_is_an_array_of_its_arguments() {
        assert_eq!(command(&[b"GET", b""]), b"*2\r\n$3\r\nGET\r\n$0\r\n\r\n");
    }
}
