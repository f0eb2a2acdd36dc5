//! The default access log format of Envoy.

use std::borrow::Cow;

use super::access_line::present;
use super::quoted::{request_line, split};
use super::{Skip, Values};

/// The fields in the order of their slots.
pub(super) const FIELDS: &[&str] = &[
    "start_time",
    "method",
    "path",
    "response_code",
    "response_flags",
    "bytes_received",
    "bytes_sent",
    "duration",
    "upstream_service_time",
    "x_forwarded_for",
    "user_agent",
    "request_id",
    "authority",
    "upstream_host",
];

/// Words between the request and the quoted fields at the end.
const WORDS: usize = 6;
/// How many of them are the code and the flags.
const FLAGS_END: usize = 2;

/// Reads `[START] "METHOD PATH PROTOCOL" CODE FLAGS RECEIVED SENT DURATION UPSTREAM "FORWARDED" "AGENT" "ID" "AUTHORITY" "HOST"`.
#[derive(Clone, Copy, Debug)]
pub(in crate::simulate) struct EnvoyText;

impl EnvoyText {
    pub(super) fn slot(self, field: &str) -> Option<usize> {
        FIELDS.iter().position(|known| *known == field)
    }

    pub(super) fn read<'l>(self, line: &'l str, values: &mut Values<'l>) -> Result<(), Skip> {
        const BROKEN: Skip = Skip::Unreadable("no start time in brackets and no quoted request");
        let (start, rest) = line.strip_prefix('[').and_then(|line| line.split_once("] ")).ok_or(BROKEN)?;
        let (request, mut rest) = split(rest).ok_or(BROKEN)?;
        let (method, path, _) = request_line(request).ok_or(Skip::NotARequest)?;
        values.extend([start, method, path].map(|field| present(field).map(Cow::Borrowed)));
        let mut words = Vec::with_capacity(WORDS);
        while words.len() < WORDS {
            rest = rest.trim_start();
            if let Some((_, after)) = split(rest) {
                // Istio writes two more words and a quoted one between the flags and the bytes.
                words.truncate(FLAGS_END);
                rest = after;
                continue;
            }
            let (word, after) = rest.split_once(' ').ok_or(BROKEN)?;
            words.push(present(word).map(Cow::Borrowed));
            rest = after;
        }
        values.extend(words);
        for _ in FIELDS.len() - 5..FIELDS.len() {
            let (quoted, after) = split(rest.trim_start()).ok_or(BROKEN)?;
            values.push(present(quoted).map(Cow::Borrowed));
            rest = after;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_format_is_read() {
        let line = r#"[2026-11-18T20:17:00.310Z] "POST /api/v1/locations HTTP/2" 204 - 154 0 226 100 "10.0.35.28" "nsq2http" "cc21d9b0-cf5c-432b-8c7e-98aeb7988cd2" "locations" "tcp://10.0.2.1:80""#;
        let mut values = Vec::new();
        EnvoyText.read(line, &mut values).expect("a line");
        let texts: Vec<_> = values.iter().map(|value| value.as_deref().unwrap_or("")).collect();
        assert_eq!(texts[..5], ["2026-11-18T20:17:00.310Z", "POST", "/api/v1/locations", "204", ""]);
        assert_eq!(texts[7..11], ["226", "100", "10.0.35.28", "nsq2http"]);
        assert_eq!((texts[12], texts.len()), ("locations", FIELDS.len()));
        for at in 0..line.len() {
            assert!(EnvoyText.read(&line[..at], &mut Vec::new()).is_err(), "cut at {at}");
        }
    }
}
