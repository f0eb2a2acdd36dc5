//! The contract that all transports share: the limits of a request and the authorisation of callers.

mod bound_tokens;
mod holds;
mod proto;
mod references;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use prost_types::value::Kind;
use proto::{Code, Entry, RateLimitDescriptor, RateLimitRequest, RateLimitServiceClient};
use serde_json::{Value, json};
use tollgate_testkit::serving::Serving;
use tonic::transport::Endpoint;

const TIMEOUT: Duration = Duration::from_secs(30);
const COST_MAX: u64 = (1 << 53) - 1;
const ATTRIBUTES_MAX: usize = 64;
/// The attributes `domain`, `descriptor` and `descriptor_index`.
const ADDED_BY_GRPC: usize = 3;

/// A request as every transport can express it.
#[derive(Clone)]
struct Sent {
    attributes: Vec<(String, String)>,
    cost: u64,
    /// gRPC has no request ids.
    id: Option<String>,
}

/// The result on one transport: allowed, or the text of the error.
type Checked = Result<(), String>;

fn start(args: &[&str]) -> Serving {
    let args = [&["--grpc", "127.0.0.1:0", "--threads", "1"], args].concat();
    Serving::start(env!("CARGO_BIN_EXE_tollgate"), &args)
}

fn connect(address: std::net::SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the server listens");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a socket");
    stream
}

/// Sends the check over HTTP; returns the status and the body.
fn http(server: &Serving, sent: &Sent, authorization: Option<&str>) -> (u16, Value) {
    let attributes: serde_json::Map<String, Value> =
        sent.attributes.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
    let mut body = json!({ "attributes": attributes, "cost": sent.cost });
    if let Some(id) = &sent.id {
        body["id"] = json!(id);
    }
    let body = body.to_string();
    let field = authorization.map(|value| format!("authorization: {value}\r\n")).unwrap_or_default();
    let head = format!(
        "POST /v1/check HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n{field}\
         content-length: {}\r\n\r\n",
        body.len()
    );
    let mut stream = connect(server.http);
    stream.write_all(head.as_bytes()).expect("the server reads");
    stream.write_all(body.as_bytes()).expect("the server reads");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("a response");
    let (head, body) = response.split_once("\r\n\r\n").expect("a head and a body");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, serde_json::from_str(body).expect("JSON"))
}

fn over_http(server: &Serving, sent: &Sent) -> Checked {
    match http(server, sent, None) {
        (200, _) => Ok(()),
        (400, problem) => Err(problem["detail"].as_str().expect("a detail").to_owned()),
        (status, problem) => panic!("{status}: {problem}"),
    }
}

fn command(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    }
    bytes
}

/// Sends commands over RESP; returns the first line of each reply.
fn resp(server: &Serving, commands: &[Vec<u8>]) -> Vec<String> {
    let mut stream = connect(server.resp);
    let mut reader = BufReader::new(stream.try_clone().expect("a socket"));
    let line = |command: &Vec<u8>| {
        stream.write_all(command).expect("the server reads");
        let mut line = String::new();
        reader.read_line(&mut line).expect("a reply");
        line.trim_end().to_owned()
    };
    commands.iter().map(line).collect()
}

fn over_resp(server: &Serving, sent: &Sent) -> Checked {
    let cost = sent.cost.to_string();
    let mut words = vec!["TG.CHECK"];
    words.extend(sent.attributes.iter().flat_map(|(name, value)| [name.as_str(), value.as_str()]));
    words.extend(["COST", &cost]);
    if let Some(id) = &sent.id {
        words.extend(["ID", id]);
    }
    let line = resp(server, &[command(&words)]).remove(0);
    match line.strip_prefix("-ERR ") {
        Some(error) => Err(error.to_owned()),
        None => {
            assert_eq!(line, "*20", "a decision");
            Ok(())
        }
    }
}

/// Sends the check over gRPC; the error is a status, or the reason of a refusal.
fn grpc(server: &Serving, sent: &Sent, authorization: Option<&str>) -> Result<Checked, tonic::Code> {
    let entry = |(key, value): &(String, String)| Entry { key: key.clone(), value: value.clone() };
    let descriptor = RateLimitDescriptor {
        entries: sent.attributes.iter().map(entry).collect(),
        limit: None,
        hits_addend: Some(sent.cost),
        is_negative_hits: false,
    };
    let message = RateLimitRequest { domain: "d".to_owned(), descriptors: vec![descriptor], hits_addend: 0 };
    let mut request = tonic::Request::new(message);
    if let Some(value) = authorization {
        request.metadata_mut().insert("authorization", value.parse().expect("a value"));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let called = runtime.block_on(async {
        let address = format!("http://{}", server.grpc.expect("gRPC is on"));
        let channel = Endpoint::from_shared(address).expect("an address").timeout(TIMEOUT).connect_lazy();
        RateLimitServiceClient::new(channel).should_rate_limit(request).await
    });
    let response = called.map_err(|status| status.code())?.into_inner();
    Ok(match response.overall_code() {
        Code::Ok => Ok(()),
        _ => {
            let reason =
                response.dynamic_metadata.as_ref().and_then(|metadata| metadata.fields.get("reason"));
            match reason.and_then(|reason| reason.kind.as_ref()) {
                Some(Kind::StringValue(reason)) => Err(reason.clone()),
                other => panic!("{other:?}"),
            }
        }
    })
}

fn over_grpc(server: &Serving, sent: &Sent) -> Checked {
    grpc(server, sent, None).unwrap_or_else(|code| panic!("{code:?}"))
}

fn sent(attributes: Vec<(String, String)>) -> Sent {
    Sent { attributes, cost: 1, id: None }
}

fn one(name: &str, value: &str) -> Sent {
    sent(vec![(name.to_owned(), value.to_owned())])
}

fn many(count: usize) -> Sent {
    sent((0..count).map(|number| (format!("a{number}"), "x".to_owned())).collect())
}

/// The largest valid request and the smallest invalid one, and the error of the latter, on all transports.
#[test]
fn all_transports_accept_the_largest_request_and_refuse_one_more_with_the_same_error() {
    let server = start(&[]);
    let name = |len: usize| one(&"n".repeat(len), "x");
    // Two bytes for each character: the limits count bytes.
    let value = |len: usize| one("v", &("ä".repeat(len / 2) + &"x".repeat(len % 2)));
    let cost = |cost| Sent { cost, ..one("unmatched", "x") };
    for (largest, too_large, error) in [
        (
            name(256),
            name(257),
            format!("attribute name \"{}…\" has 257 bytes, more than 256; shorten it", "n".repeat(40)),
        ),
        (
            value(16_384),
            value(16_385),
            "attribute \"v\" has 16385 bytes, more than 16384; shorten it, or send a hash of it".to_owned(),
        ),
        (cost(COST_MAX), cost(COST_MAX + 1), format!("cost {} exceeds the maximum {COST_MAX}", COST_MAX + 1)),
    ] {
        for check in [over_http, over_resp, over_grpc] {
            assert_eq!(check(&server, &largest), Ok(()));
            assert_eq!(check(&server, &too_large), Err(error.clone()));
        }
    }
    let error = Err(format!("more than {ATTRIBUTES_MAX} attributes; send only those that rules use"));
    for (check, max) in [
        (over_http as fn(&Serving, &Sent) -> Checked, ATTRIBUTES_MAX),
        (over_resp, ATTRIBUTES_MAX),
        (over_grpc, ATTRIBUTES_MAX - ADDED_BY_GRPC),
    ] {
        assert_eq!(check(&server, &many(max)), Ok(()));
        assert_eq!(check(&server, &many(max + 1)), error);
    }
    let id = |len: usize| Sent { id: Some("i".repeat(len)), ..one("unmatched", "x") };
    for check in [over_http, over_resp] {
        assert_eq!(check(&server, &id(256)), Ok(()));
        let error = "the request id has 257 bytes, more than 256; shorten it, or send a hash of it";
        assert_eq!(check(&server, &id(257)), Err(error.to_owned()));
        let error = "the request id is empty; send 1 to 256 bytes, or leave it out";
        assert_eq!(check(&server, &id(0)), Err(error.to_owned()));
    }
}

/// Anonymous callers may check on this server, so that only the token can be the reason.
#[test]
fn an_unknown_token_is_refused_on_all_transports() {
    let server = start(&[]);
    let check = one("user", "jane");
    for unknown in ["Bearer tg_unknown", "Basic dTpw", "Bearer"] {
        let (status, problem) = http(&server, &check, Some(unknown));
        assert_eq!((status, &problem["code"]), (401, &json!("unauthorized")), "{unknown}");
        assert_eq!(grpc(&server, &check, Some(unknown)), Err(tonic::Code::Unauthenticated), "{unknown}");
    }
    let commands = [
        command(&["AUTH", "tg_unknown"]),
        command(&["AUTH", "user", "tg_unknown"]),
        command(&["HELLO", "3", "AUTH", "user", "tg_unknown"]),
    ];
    for line in resp(&server, &commands) {
        assert!(line.starts_with("-WRONGPASS "), "{line}");
    }
    assert_eq!((over_http(&server, &check), over_resp(&server, &check)), (Ok(()), Ok(())));
    assert_eq!(over_grpc(&server, &check), Ok(()));
}

#[test]
fn grpc_refuses_unmatched_requests_and_takes_no_lease() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("rules.yaml");
    let rules = "version: 1\nunmatched: refuse\nrules:\n  - { id: exports, match: { action: export }, per: all, limit: { concurrency: 1, lease: 1h } }\n  - { id: any, match: { action: search }, per: all, limit: { fixed-window: 9/h } }\n";
    std::fs::write(&path, rules).expect("a file can be written");
    let server = start(&["--rules", path.to_str().expect("text")]);
    let lease = over_grpc(&server, &one("action", "export")).expect_err("it is refused");
    assert!(lease.starts_with("rule \"exports\" takes a lease"), "{lease}");
    let unmatched = over_grpc(&server, &one("action", "unheard-of")).expect_err("it is refused");
    assert_eq!(unmatched, "no rule matches");
    assert_eq!(over_grpc(&server, &one("action", "search")), Ok(()));
}
