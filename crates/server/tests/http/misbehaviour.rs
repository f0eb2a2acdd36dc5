//! Clients that are slow, large, hasty, or gone; and a server that ends.

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
    // The others are still served.
    assert_eq!(nothing.post("/v1/check", &search("jane", 1)).status, 200);
    body.read_to_end();
    let took = started.elapsed();
    assert!((Duration::from_secs(9)..Duration::from_secs(14)).contains(&took), "{took:?}");
    assert_eq!(nothing.post("/v1/check", &search("jane", 1)).status, 200, "who is idle may stay");
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
    // Who sends more than is read may find the connection gone before it has seen why.
    for head in [
        with_headers(65),
        format!("GET /healthz HTTP/1.1\r\nx: {}\r\n\r\n", "x".repeat(100_000)),
        format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(100_000)),
    ] {
        let mut client = Client::connect(serving.http);
        client.send(head.as_bytes());
        client.read_to_end();
        assert!(client.is_told(431), "{head:.60}");
    }
    // What is announced is not waited for if it would be too much.
    let mut client = Client::connect(serving.http);
    client.send(b"POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n");
    client.send(b"content-length: 999999999999\r\n\r\n{");
    assert_eq!(client.answer().status, 413);
    // What is not announced is counted.
    let mut client = Client::connect(serving.http);
    client.send(b"POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n");
    client.send(b"transfer-encoding: chunked\r\n\r\n");
    for _ in 0..5 {
        client.send(b"3fff\r\n");
        client.send(&[b' '; 0x3fff]);
        client.send(b"\r\n");
    }
    assert_eq!(client.answer().status, 413);
    // In pieces it is the same body.
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
    // It has been read as far as it goes when another request on another connection, sent later, is answered twice over.
    (0..2).for_each(|_| assert_eq!(idle.get("/healthz").status, 200));
    serving.signal("TERM");
    assert!(idle.is_closed(), "an idle connection is closed at once");
    busy.send(rest);
    assert_eq!(busy.answer().status, 200);
    assert!(busy.is_closed());
    assert_eq!(serving.exit_code(), Some(0));
}
