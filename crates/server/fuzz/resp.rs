//! What must hold for any bytes that come in the protocol of Redis: of commands as they are cut out, and of what is read
//! from them.

#![expect(dead_code, reason = "only what reads and writes bytes is looked at here")]

#[path = "../src/serve/resp/check.rs"]
pub(crate) mod check;
#[path = "../src/serve/resp/frame.rs"]
pub(crate) mod frame;
#[path = "../src/serve/resp/reply.rs"]
pub(crate) mod reply;
#[path = "../src/serve/resp/text.rs"]
pub(crate) mod text;
#[path = "../src/serve/resp/throttle.rs"]
pub(crate) mod throttle;

use std::fmt::Display;

use frame::{FrameError, Limits, Places, Words};
use reply::{Protocol, Reply};

/// The most places at which bytes are cut to come in two parts.
const CUTS_MAX: usize = 64;
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
    fn receive(&mut self, bytes: &[u8], limits: &Limits) {
        self.rest.extend_from_slice(bytes);
        let mut places = Places::new();
        while self.error.is_none() {
            match frame::next(&mut self.rest, limits, &mut places) {
                Err(error) => self.error = Some(error),
                Ok(None) => break,
                Ok(Some(end)) => {
                    assert!((1..=self.rest.len().min(limits.command)).contains(&end), "{end}");
                    let words = places.words(&self.rest[..end]);
                    assert!(
                        words.len() <= limits.words && words.iter().all(|word| word.len() <= limits.string)
                    );
                    read(words);
                    self.commands.push(words.iter().map(<[u8]>::to_vec).collect());
                    self.rest.drain(..end);
                }
            }
        }
    }
}

pub(crate) fn holds(bytes: &[u8]) {
    for limits in [&Limits::KNOWN, &Limits::STRANGER] {
        let mut whole = Taken::default();
        whole.receive(bytes, limits);
        if let Some(error) = whole.error {
            is_one_line(error);
        }
        for cut in (0..bytes.len()).step_by(bytes.len().div_ceil(CUTS_MAX).max(1)) {
            let mut parts = Taken::default();
            parts.receive(&bytes[..cut], limits);
            parts.receive(&bytes[cut..], limits);
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
