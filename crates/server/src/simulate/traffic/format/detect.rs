//! Recognises the format of a file by its first lines.

use super::{FieldReader, LogFormat, Skip};
use crate::simulate::format::capture;

/// Formats in the order in which they are tried. Of formats that read the same number of lines, the first is taken.
const CANDIDATES: &[LogFormat] = &[LogFormat::Haproxy, LogFormat::Envoy, LogFormat::Nginx];

/// Returns the format that reads the most of these lines, or `None` if none reads any.
pub(in crate::simulate) fn format_of(lines: &[&str]) -> Option<LogFormat> {
    let first = lines.iter().find(|line| !line.trim().is_empty())?;
    if capture::hash_key(first).is_some() {
        return Some(LogFormat::Capture);
    }
    let objects = lines.iter().filter(|line| line.trim_start().starts_with('{')).count();
    if 2 * objects > lines.len() {
        return Some(json_dialect(lines));
    }
    let text = CANDIDATES.iter().map(|&format| {
        let readable = FieldReader::new(format, &["x"]).map_or(0, |reader| {
            let weight = |line: &&str| match reader.read(line, &mut Vec::new()) {
                Ok(()) => 2,
                Err(Skip::NotARequest) => 1,
                Err(Skip::Unreadable(_)) => 0,
            };
            lines.iter().map(weight).sum::<u32>()
        });
        (readable, format)
    });
    // The first of equals: `max_by_key` would return the last.
    let best = text.reduce(|best, next| if next.0 > best.0 { next } else { best });
    match best {
        Some((1.., LogFormat::Nginx)) if is_traefik(lines) => Some(LogFormat::Traefik),
        Some((1.., format)) => Some(format),
        _ if is_csv(first) => Some(LogFormat::Csv),
        _ => None,
    }
}

/// Traefik writes the number of the request, the router, the URL and the duration after the agent.
fn is_traefik(lines: &[&str]) -> bool {
    lines.iter().filter(|line| line.ends_with("ms") && line.contains("\" \"http")).count() * 2 > lines.len()
}

fn json_dialect(lines: &[&str]) -> LogFormat {
    let has = |members: &[&str]| {
        let with = |line: &&&str| members.iter().all(|member| line.contains(&format!("\"{member}\"")));
        2 * lines.iter().filter(with).count() > lines.len()
    };
    if has(&["RequestMethod", "RequestPath"]) {
        LogFormat::Traefik
    } else if has(&["request", "ts", "logger"]) {
        LogFormat::Caddy
    } else if has(&["start_time", "response_code"]) {
        LogFormat::Envoy
    } else {
        LogFormat::Json
    }
}

/// A header names several columns, and its names are words.
fn is_csv(header: &str) -> bool {
    let separators = header.bytes().filter(|byte| b",;\t".contains(byte)).count();
    separators > 0 && header.chars().all(|c| c.is_alphanumeric() || "_-.@\",;\t \r\u{feff}".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_format_is_recognised_between_other_lines() {
        for (line, format) in [
            (r#"192.0.2.1 - - [18/Nov/2026:20:03:57 +0000] "GET / HTTP/1.1" 200 12"#, LogFormat::Nginx),
            (
                r#"192.0.2.1 - - [18/Nov/2026:20:03:57 +0000] "GET /a HTTP/1.1" 200 12 "-" "Mozilla/5.0""#,
                LogFormat::Nginx,
            ),
            (
                r#"192.0.2.1 - - [18/Nov/2026:20:03:57 +0000] "GET / HTTP/1.1" 200 12 "-" "-" 7 "r@file" "http://h" 1ms"#,
                LogFormat::Traefik,
            ),
            (
                r#"10.0.1.2:33317 [06/Feb/2026:12:14:14.655] in s/s 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 "GET / HTTP/1.1""#,
                LogFormat::Haproxy,
            ),
            (
                r#"[2026-11-18T20:17:00.310Z] "GET / HTTP/2" 204 - 154 0 226 100 "-" "-" "-" "-" "-""#,
                LogFormat::Envoy,
            ),
            (r#"{"start_time":"2026-11-18T20:17:00.310Z","response_code":200}"#, LogFormat::Envoy),
            (r#"{"ts":1.5,"logger":"http.log.access","request":{}}"#, LogFormat::Caddy),
            (r#"{"RequestMethod":"GET","RequestPath":"/"}"#, LogFormat::Traefik),
            (r#"{"time":1,"path":"/"}"#, LogFormat::Json),
        ] {
            assert_eq!(format_of(&[line, line, "garbage"]), Some(format), "{line}");
        }
        assert_eq!(format_of(&["time,ip,path", "1,2,3"]), Some(LogFormat::Csv));
        assert_eq!(format_of(&["garbage", "more garbage"]), None);
        assert_eq!(format_of(&[]), None);
    }
}
