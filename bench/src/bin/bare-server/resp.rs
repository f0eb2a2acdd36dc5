//! The Redis protocol (RESP), just enough to find the end of a command. Every command gets a fixed reply.

use anyhow::{Result, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The reply to a check in redis-cell's format.
const ANSWER: &[u8] = b"*5\r\n:0\r\n:1000000\r\n:999999\r\n:-1\r\n:1\r\n";
/// More than is ever in flight on one connection.
const INPUT_MAX: usize = 32 << 10;

pub(crate) async fn serve(mut stream: TcpStream) -> Result<()> {
    let (mut input, mut end) = (vec![0; INPUT_MAX], 0);
    let mut output = Vec::new();
    loop {
        ensure!(end < input.len(), "a command is too long");
        let length = stream.read(&mut input[end..]).await?;
        if length == 0 {
            return Ok(());
        }
        end += length;
        let mut start = 0;
        while let Some(length) = command_length(&input[start..end]) {
            start += length;
            output.extend_from_slice(ANSWER);
        }
        input.copy_within(start..end, 0);
        end -= start;
        stream.write_all(&output).await?;
        output.clear();
    }
}

/// Returns the length of the first command, or `None` if it is incomplete.
fn command_length(bytes: &[u8]) -> Option<usize> {
    let (words, mut at) = number(bytes, 0)?;
    for _ in 0..words {
        let (length, after) = number(bytes, at)?;
        at = after + length + 2;
    }
    (at <= bytes.len()).then_some(at)
}

/// Returns the number in the line that begins here, and the start of the next line.
fn number(bytes: &[u8], line: usize) -> Option<(usize, usize)> {
    let digits = bytes.get(line + 1..)?;
    let mut value = 0;
    for (at, &byte) in digits.iter().enumerate() {
        match byte {
            b'0'..=b'9' => value = 10 * value + usize::from(byte - b'0'),
            _ => return Some((value, line + at + 3)),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::command_length;

    #[test]
    fn a_command_ends_where_its_last_word_does() {
        let command = b"*2\r\n$4\r\nPING\r\n$12\r\nhello\r\nworld\r\n";
        let twice = [command.as_slice(), command].concat();
        assert_eq!(command_length(&twice), Some(command.len()));
        for cut in 0..command.len() {
            assert_eq!(command_length(&command[..cut]), None, "cut at {cut}");
        }
    }
}
