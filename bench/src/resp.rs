//! The Redis protocol (RESP), as a client writes and reads it.

use anyhow::{Result, bail};

/// Encodes a command.
pub(crate) fn command(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// Returns the length of the first reply, or `None` if it is incomplete.
pub(crate) fn length(bytes: &[u8]) -> Result<Option<usize>> {
    let Some(end) = bytes.windows(2).position(|pair| pair == b"\r\n") else { return Ok(None) };
    let after = end + 2;
    let number = || -> Result<usize> { Ok(str::from_utf8(&bytes[1..end])?.parse()?) };
    let whole = match bytes[0] {
        b'+' | b'-' | b':' => after,
        b'$' => after + number()? + 2,
        b'*' => {
            let mut at = after;
            for _ in 0..number()? {
                match length(&bytes[at..])? {
                    Some(length) => at += length,
                    None => return Ok(None),
                }
            }
            at
        }
        kind => bail!("unexpected first byte of a reply: {kind}"),
    };
    Ok((whole <= bytes.len()).then_some(whole))
}
