//! A contender of the server suite: which server, which request, and the expected response.

use anyhow::{Result, ensure};

use super::message::{FRAME, field, framed, framed_length, integer};
use super::servers::ServerKind;
use crate::resp;

/// Every server admits this number per hour, which is more than a run asks for one key.
pub(super) const PER_HOUR: u32 = 1_000_000;
/// Tollgate's one rule.
pub(super) const RULES: &str =
    "version: 1\nrules:\n  - id: per-key\n    per: api_key\n    limit: { token-bucket: 1000000/h }\n";

/// The protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Protocol {
    Resp,
    Http,
    Grpc,
}

impl Protocol {
    /// Requests in flight per connection; one if the protocol allows only one.
    pub(super) const fn at_most(self, requests: usize) -> usize {
        match self {
            Protocol::Resp | Protocol::Grpc => requests,
            Protocol::Http => 1,
        }
    }

    /// Number of connections to the server.
    pub(super) const fn connections(self) -> usize {
        match self {
            Protocol::Resp | Protocol::Http => 64,
            // As many as a few gateways have.
            Protocol::Grpc => 10,
        }
    }
}

/// One contender.
pub(super) struct Entrant {
    pub(super) name: &'static str,
    what: &'static str,
    pub(super) server: ServerKind,
    pub(super) protocol: Protocol,
    /// The gRPC method.
    pub(super) path: &'static str,
    /// Encodes the request for a key.
    pub(super) request: fn(&str) -> Vec<u8>,
    /// The first bytes of a response that admits.
    begins: &'static str,
    /// What else it contains.
    holds: &'static str,
}

pub(super) const THROTTLE: Entrant = Entrant {
    name: "tollgate CL.THROTTLE",
    what: "`tollgate serve`: `CL.THROTTLE key 999999 1000000 3600`, with a limit that the caller gives",
    server: ServerKind::Tollgate,
    protocol: Protocol::Resp,
    path: "",
    request: |key| command(&["CL.THROTTLE", key, "999999", "1000000", "3600"]),
    begins: "*5\r\n:0\r\n:1000000\r\n",
    holds: "",
};

pub(super) const TG_CHECK: Entrant = Entrant {
    name: "tollgate TG.CHECK",
    what: "`tollgate serve --rules`: `TG.CHECK api_key key` with one rule per `api_key`; the answer names the rule and has ten members, a receipt among them",
    server: ServerKind::Tollgate,
    protocol: Protocol::Resp,
    path: "",
    request: |key| command(&["TG.CHECK", "api_key", key]),
    begins: "*20\r\n$7\r\nallowed\r\n:1\r\n$4\r\nrule\r\n$7\r\nper-key\r\n",
    holds: "",
};

pub(super) const THROTTLECRAB_RESP: Entrant = Entrant {
    name: "throttlecrab",
    what: "`throttlecrab-server`: `THROTTLE key 1000000 1000000 3600`, or `POST /throttle` or its gRPC call with the same numbers",
    server: ServerKind::Throttlecrab,
    protocol: Protocol::Resp,
    path: "",
    request: |key| command(&["THROTTLE", key, "1000000", "1000000", "3600"]),
    begins: "*5\r\n:1\r\n:1000000\r\n",
    holds: "",
};

pub(super) const BARE_ECHO: Entrant = Entrant {
    name: "bare echo",
    what: "no limiter: finds the end of every command and answers five fixed integers, on the runtime and sockets of `tollgate serve`",
    server: ServerKind::Bare,
    protocol: Protocol::Resp,
    path: "",
    request: THROTTLE.request,
    begins: "*5\r\n:0\r\n:1000000\r\n",
    holds: "",
};

pub(super) const CHECK: Entrant = Entrant {
    name: "tollgate check",
    what: "`tollgate serve --rules`: `POST /v1/check` with one rule per `api_key`; the answer is the whole decision, with its headers",
    server: ServerKind::Tollgate,
    protocol: Protocol::Http,
    path: "",
    request: |key| post("/v1/check", &format!(r#"{{"attributes":{{"api_key":"{key}"}}}}"#)),
    begins: OK,
    holds: r#""rule":"per-key""#,
};

pub(super) const AUTHORIZE: Entrant = Entrant {
    name: "tollgate authorize",
    what: "the same rule: `GET /v1/authorize?header=api_key:x-api-key`, answered with headers only",
    server: ServerKind::Tollgate,
    protocol: Protocol::Http,
    path: "",
    request: |key| get("/v1/authorize?header=api_key:x-api-key", key),
    begins: OK,
    holds: r#""per-key""#,
};

pub(super) const THROTTLECRAB_HTTP: Entrant = Entrant {
    protocol: Protocol::Http,
    request: |key| {
        let body =
            format!(r#"{{"key":"{key}","max_burst":1000000,"count_per_period":1000000,"period":3600}}"#);
        post("/throttle", &body)
    },
    begins: OK,
    holds: r#""allowed":true"#,
    ..THROTTLECRAB_RESP
};

pub(super) const NGINX: Entrant = Entrant {
    name: "nginx limit_req",
    what: "`GET /` with `limit_req` by the header `x-api-key`, answered by `empty_gif` from memory; a worker per core",
    server: ServerKind::Nginx,
    protocol: Protocol::Http,
    path: "",
    request: |key| get("/", key),
    begins: OK,
    holds: "",
};

pub(super) const BARE_POST: Entrant = Entrant {
    name: "bare hyper",
    what: "no limiter: hyper reads the whole body of the same `POST` as tollgate check and answers a fixed JSON, on the runtime and sockets of `tollgate serve`",
    server: ServerKind::Bare,
    protocol: Protocol::Http,
    path: "",
    request: CHECK.request,
    begins: OK,
    holds: "",
};

pub(super) const BARE_GET: Entrant = Entrant {
    name: "bare hyper, no body",
    what: "the same with the same `GET` as tollgate authorize",
    request: AUTHORIZE.request,
    ..BARE_POST
};

pub(super) const RLS: Entrant = Entrant {
    name: "tollgate RLS",
    what: "`tollgate serve --rules --grpc`: `ShouldRateLimit` with one descriptor, one rule per `api_key`; the answer has the rule, its limit and the headers",
    server: ServerKind::Tollgate,
    protocol: Protocol::Grpc,
    path: "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
    request: |key| {
        let entry = [field(1, b"api_key"), field(2, key.as_bytes())].concat();
        framed(&[field(1, b"bench"), field(2, &field(1, &entry))].concat())
    },
    begins: ADMITTED,
    holds: "per-key",
};

pub(super) const THROTTLECRAB_GRPC: Entrant = Entrant {
    protocol: Protocol::Grpc,
    path: "/throttlecrab.RateLimiter/Throttle",
    request: |key| {
        let numbers = [(2, 1_000_000), (3, 1_000_000), (4, 3_600), (5, 1)];
        let numbers = numbers.into_iter().flat_map(|(number, value)| integer(number, value));
        framed(&field(1, key.as_bytes()).into_iter().chain(numbers).collect::<Vec<u8>>())
    },
    begins: ADMITTED,
    ..THROTTLECRAB_RESP
};

pub(super) const BARE_TONIC: Entrant = Entrant {
    name: "bare tonic",
    what: "no limiter: tonic reads the same message as tollgate RLS and answers that the request may pass, on the runtime and sockets of `tollgate serve`",
    server: ServerKind::Bare,
    begins: ADMITTED,
    holds: "",
    ..RLS
};

const OK: &str = "HTTP/1.1 200 OK\r\n";
/// The first field of a message with value 1: Envoy's code `OK`, or true.
const ADMITTED: &str = "\u{8}\u{1}";

impl Entrant {
    /// The contender as the report describes it.
    pub(super) fn described(&self) -> tollgate_bench_report::Contender {
        tollgate_bench_report::Contender { name: self.name.to_owned(), what: self.what.to_owned() }
    }

    /// Returns the length of the first response, or `None` if it is incomplete. A refusal is an error.
    pub(super) fn answer(&self, bytes: &[u8]) -> Result<Option<usize>> {
        let length = match self.protocol {
            Protocol::Resp => resp::length(bytes)?,
            Protocol::Http => http_length(bytes)?,
            Protocol::Grpc => framed_length(bytes),
        };
        if let Some(length) = length {
            let start = if self.protocol == Protocol::Grpc { FRAME } else { 0 };
            let answer = &bytes[start..length];
            let is_right = answer.starts_with(self.begins.as_bytes()) && contains(answer, self.holds);
            ensure!(is_right, "{} answers {:?}", self.name, String::from_utf8_lossy(answer));
        }
        Ok(length)
    }
}

fn contains(answer: &[u8], part: &str) -> bool {
    part.is_empty() || answer.windows(part.len()).any(|window| window == part.as_bytes())
}

fn command(words: &[&str]) -> Vec<u8> {
    resp::command(&words.iter().map(|word| word.as_bytes()).collect::<Vec<&[u8]>>())
}

fn post(path: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

fn get(path: &str, key: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nx-api-key: {key}\r\n\r\n").into_bytes()
}

/// Returns the length of the first response, or `None` if it is incomplete.
fn http_length(bytes: &[u8]) -> Result<Option<usize>> {
    let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { return Ok(None) };
    let head = str::from_utf8(&bytes[..end])?;
    let mut body = 0;
    for line in head.lines().skip(1) {
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            body = value.trim().parse()?;
        }
    }
    let whole = end + 4 + body;
    Ok((whole <= bytes.len()).then_some(whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_ends_where_its_body_does() -> Result<()> {
        let response = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nx: y\r\n\r\nhello";
        let twice = [response.as_slice(), response].concat();
        assert_eq!(http_length(&twice)?, Some(response.len()));
        for cut in 0..response.len() {
            assert_eq!(http_length(&response[..cut])?, None, "cut at {cut}");
        }
        Ok(())
    }

    #[test]
    fn only_answers_that_admit_by_the_rule_are_taken() -> Result<()> {
        let admitted = b"*5\r\n:0\r\n:1000000\r\n:999999\r\n:-1\r\n:1\r\n";
        assert_eq!(THROTTLE.answer(admitted)?, Some(admitted.len()));
        assert!(THROTTLE.answer(b"*5\r\n:1\r\n:1000000\r\n:0\r\n:1\r\n:1\r\n").is_err());
        assert!(THROTTLE.answer(b"-ERR no\r\n").is_err());
        let unmatched = b"HTTP/1.1 200 OK\r\ncontent-length: 16\r\n\r\n{\"allowed\":true}";
        assert!(CHECK.answer(unmatched).is_err());
        Ok(())
    }
}
