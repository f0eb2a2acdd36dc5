//! Slow clients, large requests, pipelines, and requests in flight at shutdown.

use std::time::{Duration, Instant};

use super::client::{Client, request};
use super::start;
use super::{search, served};

const JSON: (&str, &str) = ("content-type", "application/json");

#[test]
fn a_slow_head_or_body_closes_the_connection() {
    let (serving, _) = served();
    let (mut head, mut body, mut nothing) =
        (Client::connect(serving.http), Client::connect(serving.http), Client::connect(serving.http));
    let started = Instant::now();
    head.send(b"POST /v1/check HTTP/1.1\r\nhost: ");
    body.send(b"POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n");
    body.send(b"content-length: 20\r\n\r\n{");
    assert!(head.is_closed());
    let took = started.elapsed();
    assert!((Duration::from_secs(4)..Duration::from_secs(9)).contains(&took), "{took:?}");
    // Other clients are still served.
    assert_eq!(nothing.post("/v1/check", &search("jane", 1)).status, 200);
    body.read_to_end();
    let took = started.elapsed();
    assert!((Duration::from_secs(9)..Duration::from_secs(14)).contains(&took), "{took:?}");
    assert_eq!(nothing.post("/v1/check", &search("jane", 1)).status, 200, "an idle connection stays open");
}

#[test]
fn heads_and_bodies_are_limited() {
    let (serving, _) = served();
    let with_headers = |count: usize| {
        let mut head = String::from("GET /healthz HTTP/1.1\r\n");
        (0..count).for_each(|n| head.push_str(&format!("x-{n}: x\r\n")));
        head + "\r\n"
    };
    let mut client = Client::connect(serving.http);
    client.send(with_headers(64).as_bytes());
    assert_eq!(client.answer().status, 200);
    // A client that is still sending may see the connection close before it reads the response.
    for head in [
        with_headers(65),
        format!("GET /healthz HTTP/1.1\r\nx: {}\r\n\r\n", "x".repeat(100_000)),
        format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(100_000)),
    ] {
        let mut client = Client::connect(serving.http);
        client.send(head.as_bytes());
        client.read_to_end();
        assert!(client.has_status_or_nothing(431), "{head:.60}");
    }
    // A content length that is too large is refused before the body arrives.
    let mut client = Client::connect(serving.http);
    client.send(b"POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n");
    client.send(b"content-length: 999999999999\r\n\r\n{");
    assert_eq!(client.answer().status, 413);
    // A body without a content length is refused when it becomes too large.
    let mut client = Client::connect(serving.http);
    client.send(b"POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n");
    client.send(b"transfer-encoding: chunked\r\n\r\n");
    for _ in 0..5 {
        client.send(b"3fff\r\n");
        client.send(&[b' '; 0x3fff]);
        client.send(b"\r\n");
    }
    assert_eq!(client.answer().status, 413);
    // A body in pieces is accepted.
    let mut client = Client::connect(serving.http);
    client.send(b"POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n");
    client.send(b"transfer-encoding: chunked\r\n\r\n8\r\n{\"attrib\r\n");
    client.send(b"9\r\nutes\":{}}\r\n0\r\n\r\n");
    assert_eq!(client.answer().status, 200);
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let (_serving, mut client) = served();
    let check = request("POST", "/v1/check", &[JSON], search("jane", 1).as_bytes());
    client.send(&check.repeat(6));
    let answers: Vec<u16> = (0..6).map(|_| client.answer().status).collect();
    assert_eq!(answers, [200, 200, 200, 200, 200, 429]);
}

#[test]
fn requests_in_flight_at_shutdown_are_answered() {
    let mut serving = start(&[]);
    let (mut busy, mut idle) = (Client::connect(serving.http), Client::connect(serving.http));
    assert_eq!(idle.get("/healthz").status, 200);
    let whole = request("POST", "/v1/check", &[JSON], br#"{"attributes":{"user":"jane"}}"#);
    let (first, rest) = whole.split_at(whole.len() - 5);
    busy.send(first);
    // When two later requests on another connection are answered, the server has read the part that was sent.
    (0..2).for_each(|_| assert_eq!(idle.get("/healthz").status, 200));
    serving.signal("TERM");
    assert!(idle.is_closed(), "an idle connection is closed at once");
    busy.send(rest);
    assert_eq!(busy.answer().status, 200);
    assert!(busy.is_closed());
    assert_eq!(serving.exit_code(), Some(0));
}
