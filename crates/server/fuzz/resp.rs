//! What must hold for any bytes that come in the protocol of Redis: of commands as they are cut out, and of what is read
//! from them.

#![expect(dead_code, reason = "only what reads and writes bytes is looked at here")]

#[path = "../src/serve/edge/resp/check.rs"]
pub(crate) mod check;
#[path = "../src/serve/edge/resp/frame.rs"]
pub(crate) mod frame;
#[path = "../src/serve/edge/resp/reply.rs"]
pub(crate) mod reply;
#[path = "../src/serve/edge/resp/text.rs"]
pub(crate) mod text;
#[path = "../src/serve/edge/resp/throttle.rs"]
pub(crate) mod throttle;

use std::fmt::Display;

use frame::{FrameError, Limits, Places, Words};
use reply::{Protocol, Reply};

/// The most places at which bytes are cut to come in two parts. Few, so that many inputs are tried; which ones they are
/// differs from input to input.
const CUTS_MAX: usize = 6;
/// The longest error: the longest name of a rule or an attribute is not in it whole.
const ERROR_MAX: usize = 512;

/// Bytes as they came, the commands that were found in them, and why no more were.
#[derive(Default)]
struct Taken {
    rest: Vec<u8>,
    commands: Vec<Vec<Vec<u8>>>,
    error: Option<FrameError>,
}

impl Taken {
    /// Takes what has come; `look` sees the words of every command.
    fn receive(&mut self, bytes: &[u8], limits: &Limits, look: impl Fn(Words<'_, '_>)) {
        self.rest.extend_from_slice(bytes);
        let (mut places, mut start) = (Places::new(), 0);
        while self.error.is_none() {
            let rest = &mut self.rest[start..];
            match frame::next(rest, limits, &mut places) {
                Err(error) => self.error = Some(error),
                Ok(None) => break,
                Ok(Some(end)) => {
                    assert!((1..=rest.len().min(limits.command)).contains(&end), "{end}");
                    let words = places.words(&rest[..end]);
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

pub(crate) fn holds(bytes: &[u8]) {
    for limits in [&Limits::KNOWN, &Limits::ANONYMOUS] {
        let mut whole = Taken::default();
        whole.receive(bytes, limits, read);
        if let Some(error) = whole.error {
            is_one_line(error);
        }
        let step = bytes.len().div_ceil(CUTS_MAX).max(1);
        for cut in (bytes.len() % step..bytes.len()).step_by(step) {
            let mut parts = Taken::default();
            parts.receive(&bytes[..cut], limits, |_| ());
            parts.receive(&bytes[cut..], limits, |_| ());
            assert_eq!(parts.commands, whole.commands, "cut at {cut}");
            assert_eq!(parts.error.is_some(), whole.error.is_some(), "cut at {cut}");
        }
    }
}

/// Reads the arguments of every command from these words.
fn read(words: Words<'_, '_>) {
    let rest = words.from(1);
    match throttle::Question::read(rest, &mut throttle::Recent::default()) {
        Ok(question) => {
            let cost = question.operation().cost().unwrap_or(u64::MAX);
            assert!(cost <= question.limit.capacity(), "{question:?}");
        }
        Err(wrong) => is_one_line(wrong),
    }
    for usage in [check::USAGE, check::USAGE_PEEK, check::USAGE_RESET] {
        match check::Question::read(usage, rest) {
            Ok(question) => {
                let request = question.request();
                let (attributes, options) = (request.attributes.iter().count(), rest.len() / 2);
                assert!((1..=options).contains(&attributes), "{question:?}");
                assert!(request.id.is_none_or(|id| !id.is_empty()));
            }
            Err(wrong) => is_one_line(wrong),
        }
    }
}

fn is_one_line(error: impl Display) {
    let mut out = Vec::new();
    Reply::new(&mut out, Protocol::Resp2).error("ERR", error);
    let text = std::str::from_utf8(&out).expect("an error is text");
    let line = text.strip_prefix("-ERR ").and_then(|text| text.strip_suffix("\r\n"));
    assert!(line.is_some_and(|line| !line.contains(char::is_control)), "{text:?}");
    assert!(text.len() <= ERROR_MAX, "{} bytes: {text}", text.len());
}
