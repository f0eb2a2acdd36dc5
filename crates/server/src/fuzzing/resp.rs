//! Bytes on a RESP connection: how commands are found in them, and how their arguments are read.

use std::fmt::Display;

use crate::serve::edge::resp::commands::limit_command::LimitCommand;
use crate::serve::edge::resp::commands::table::Entry;
use crate::serve::edge::resp::commands::throttle::{LastLimit, ThrottleRequest};
use crate::serve::edge::resp::frame::{self, FrameError, Limits, LosslessWords, WordSpans, Words};
use crate::serve::edge::resp::reply::{Reply, RespVersion};

/// Positions at which the input is split in two parts. Few, so that many inputs are tried; they depend on the input.
const CUTS_MAX: usize = 6;
/// Bytes of an error. Long input is not echoed whole.
const ERROR_MAX: usize = 512;

/// The unread input, the commands that were found, and the error that ended them.
#[derive(Default)]
struct Parsed {
    rest: Vec<u8>,
    commands: Vec<Vec<Vec<u8>>>,
    error: Option<FrameError>,
}

impl Parsed {
    /// Parses new input; `look` gets the words of every command.
    fn receive(&mut self, bytes: &[u8], limits: &Limits, look: impl Fn(Words<'_, '_>)) {
        self.rest.extend_from_slice(bytes);
        let (mut spans, mut start) = (WordSpans::new(), 0);
        while self.error.is_none() {
            let rest = &mut self.rest[start..];
            match frame::next(rest, limits, &mut spans) {
                Err(error) => self.error = Some(error),
                Ok(None) => break,
                Ok(Some(end)) => {
                    assert!((1..=rest.len().min(limits.command)).contains(&end), "{end}");
                    let words = spans.words(&rest[..end]);
                    assert!(
                        words.len() <= limits.words && words.iter().all(|word| word.len() <= limits.string)
                    );
                    look(words);
                    self.commands.push(words.iter().map(<[u8]>::to_vec).collect());
                    start += end;
                }
            }
        }
        self.rest.drain(..start);
    }
}

/// Parses a stream of commands. It gives the same commands however it is split, and every error is one short line.
pub fn resp(bytes: &[u8]) {
    for limits in [&Limits::AUTHENTICATED, &Limits::ANONYMOUS] {
        let mut whole = Parsed::default();
        whole.receive(bytes, limits, read);
        if let Some(error) = whole.error {
            is_one_line(error);
        }
        let step = bytes.len().div_ceil(CUTS_MAX).max(1);
        for cut in (bytes.len() % step..bytes.len()).step_by(step) {
            let mut parts = Parsed::default();
            parts.receive(&bytes[..cut], limits, |_| ());
            parts.receive(&bytes[cut..], limits, |_| ());
            assert_eq!(parts.commands, whole.commands, "cut at {cut}");
            assert_eq!(parts.error.is_some(), whole.error.is_some(), "cut at {cut}");
        }
    }
}

/// Reads these words as the arguments of every command, also as lossless text.
fn read(words: Words<'_, '_>) {
    let rest = words.from(1);
    match ThrottleRequest::read(rest, &mut LastLimit::default(), false) {
        Ok(request) => {
            let cost = request.operation().cost().unwrap_or(u64::MAX);
            assert!(cost <= request.limit.capacity(), "{request:?}");
        }
        Err(error) => is_one_line(error),
    }
    let lossless = LosslessWords::new(rest);
    for entry in Entry::all() {
        let last = &mut LastLimit::default();
        match LimitCommand::read(entry, rest, last, false) {
            Ok(command) => is_valid(&command, rest),
            Err(error) => {
                let again = LimitCommand::read(entry, lossless.words(), last, true);
                match again {
                    Ok(command) => {
                        assert!(error.is_not_text(), "the same words are valid: {error}");
                        is_valid(&command, rest);
                    }
                    Err(error) => {
                        assert!(!error.is_not_text(), "lossless words are text");
                        is_one_line(error);
                    }
                }
            }
        }
    }
}

fn is_valid(command: &LimitCommand<'_>, words: Words<'_, '_>) {
    let Some(checked) = command.request() else { return };
    let request = checked.request();
    let (attributes, most) = (request.attributes.iter().count(), words.len() / 2);
    assert!((1..=most).contains(&attributes), "{checked:?}");
    assert!(request.id.is_none_or(|id| !id.is_empty()));
}

fn is_one_line(error: impl Display) {
    let mut out = Vec::new();
    Reply::new(&mut out, RespVersion::Resp2).error("ERR", error);
    let text = std::str::from_utf8(&out).expect("an error is text");
    let line = text.strip_prefix("-ERR ").and_then(|text| text.strip_suffix("\r\n"));
    assert!(line.is_some_and(|line| !line.contains(char::is_control)), "{text:?}");
    assert!(text.len() <= ERROR_MAX, "{} bytes: {text}", text.len());
}
