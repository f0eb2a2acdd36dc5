//! The HTTP log format of HAProxy, with or without a syslog header.

use std::borrow::Cow;

use super::access_line::present;
use super::quoted::request_line;
use super::{Skip, Values};

/// The fields in the order of their slots. `capture1` to `capture8` are the captured request headers.
pub(super) const FIELDS: &[&str] = &[
    "client_ip",
    "accept_date",
    "frontend",
    "backend",
    "duration",
    "status",
    "method",
    "request_uri",
    "capture1",
    "capture2",
    "capture3",
    "capture4",
    "capture5",
    "capture6",
    "capture7",
    "capture8",
];

const CAPTURES: usize = 8;

/// Reads `CLIENT:PORT [ACCEPT DATE] FRONTEND BACKEND/SERVER TIMERS STATUS ... {CAPTURES} "REQUEST"`.
#[derive(Clone, Copy, Debug)]
pub(in crate::simulate) struct HaproxyLine;

impl HaproxyLine {
    pub(super) fn slot(self, field: &str) -> Option<usize> {
        FIELDS.iter().position(|known| *known == field)
    }

    pub(super) fn read<'l>(self, line: &'l str, values: &mut Values<'l>) -> Result<(), Skip> {
        const BROKEN: Skip = Skip::Unreadable("no accept date in brackets and no quoted request");
        let (client, date, rest) = date_of(line).ok_or(BROKEN)?;
        let client = client.trim_end().rsplit(' ').next().unwrap_or_default();
        let address = client.rsplit_once(':').map_or(client, |(address, _port)| address);
        let mut words = rest.trim_start().splitn(5, ' ');
        let mut word = || words.next().filter(|word| !word.is_empty()).ok_or(BROKEN);
        let (frontend, backend, timers, status, rest) = (word()?, word()?, word()?, word()?, word()?);
        // A line of nginx has words here too, but no timers.
        if !timers.bytes().all(|byte| byte.is_ascii_digit() || b"/+-".contains(&byte)) {
            return Err(BROKEN);
        }
        let total = timers.rsplit('/').next().unwrap_or_default().trim_start_matches('+');
        let quote = memchr::memchr(b'"', rest.as_bytes()).ok_or(BROKEN)?;
        let request = rest[quote + 1..].trim_end().strip_suffix('"').ok_or(BROKEN)?;
        let (method, target, _) = request_line(request).ok_or(Skip::NotARequest)?;
        let captured = rest[..quote].find('{').and_then(|open| {
            let inside = &rest[open + 1..quote];
            inside.find('}').map(|close| &inside[..close])
        });
        let fixed = [address, date, frontend, backend, total, status, method, target];
        values.extend(fixed.map(|field| present(field).map(Cow::Borrowed)));
        let mut captures = captured.into_iter().flat_map(|captured| captured.split('|'));
        values.extend((0..CAPTURES).map(|_| captures.next().and_then(present).map(Cow::Borrowed)));
        Ok(())
    }
}

/// Divides a line around the date in brackets. The header of syslog may have brackets too.
fn date_of(line: &str) -> Option<(&str, &str, &str)> {
    let mut from = 0;
    loop {
        let open = from + line[from..].find(" [")?;
        let close = open + line[open..].find("] ")?;
        let date = &line[open + 2..close];
        if date.as_bytes().get(2) == Some(&b'/') {
            return Some((&line[..open], date, &line[close + 2..]));
        }
        from = close;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_with_and_without_a_syslog_header_are_read() {
        let line = r#"10.0.1.2:33317 [06/Feb/2026:12:14:14.655] http-in static/srv1 10/0/30/69/+109 200 2750 - - ---- 1/1/1/1/0 0/0 {acme|} {} "GET /index.html?q HTTP/1.1""#;
        for line in [line.to_owned(), format!("Feb  6 12:14:14 localhost haproxy[14389]: {line}")] {
            let mut values = Vec::new();
            HaproxyLine.read(&line, &mut values).expect("a line");
            let texts: Vec<_> = values.iter().map(|value| value.as_deref().unwrap_or("")).collect();
            let expected =
                ["10.0.1.2", "06/Feb/2026:12:14:14.655", "http-in", "static/srv1", "109", "200", "GET"];
            assert_eq!(texts[..7], expected);
            assert_eq!(texts[7..10], ["/index.html?q", "acme", ""]);
            assert_eq!(texts.len(), FIELDS.len());
        }
        let bad = line.replace("GET /index.html?q HTTP/1.1", "<BADREQ>");
        assert_eq!(HaproxyLine.read(&bad, &mut Vec::new()), Err(Skip::NotARequest));
        for at in 0..line.len() {
            assert!(HaproxyLine.read(&line[..at], &mut Vec::new()).is_err(), "cut at {at}");
        }
    }
}
