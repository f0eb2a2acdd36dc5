//! One caller's blast against a slow store leaves the rules of another caller on the store.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroU32;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tollgate_testkit::fault_proxy::{FaultProxy, Faults, Line};
use tollgate_testkit::redis::{Flavour, Server};
use tollgate_testkit::serving::Serving;

const RULES: &str = "version: 1
rules:
  - { id: log-in, match: { action: log-in }, per: user, on_failure: open, limit: { sliding-log: 2/h } }
  - { id: bulk, match: { action: bulk }, per: user, on_failure: open, limit: { sliding-window: 1_000_000/h, buckets: 60 } }
";
/// Connections of the blast, each with a pipeline of this many commands.
const CONNECTIONS: usize = 16;
const PIPELINE: usize = 128;
/// Checks of the victim.
const CHECKS: usize = 60;
/// The replies of the store for the whole blast at once would take several deadlines on this line.
const BYTES_PER_SEC: u32 = 100_000;

fn token(name: &str) -> (String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_tollgate")).args(["token", "--name", name]).output();
    let output = output.expect("the binary runs");
    let line = String::from_utf8_lossy(&output.stderr)
        .lines()
        .find(|line| line.contains("sha256:"))
        .map(str::to_owned);
    (String::from_utf8(output.stdout).expect("text").trim().to_owned(), line.expect("a line"))
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the server listens");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
    stream.set_nodelay(true).expect("a socket");
    stream
}

fn command(words: &[&str]) -> String {
    let words: String = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
    format!("*{}\r\n{words}", words.matches('$').count())
}

/// Replies of the blast.
#[derive(Default)]
struct Replies {
    decided: AtomicU64,
    overloaded: AtomicU64,
}

/// Sends pipeline after pipeline, each when all replies to the one before have come, until it is told to end.
fn blast(address: SocketAddr, token: &str, number: usize, is_over: &AtomicBool, replies: &Replies) {
    let mut stream = connect(address);
    let mut reader = BufReader::new(stream.try_clone().expect("a socket"));
    stream.write_all(command(&["AUTH", token]).as_bytes()).expect("the server reads");
    let pipeline: String = (0..PIPELINE)
        .map(|index| command(&["TG.CHECK", "action", "bulk", "user", &format!("b-{number}-{index}")]))
        .collect();
    let mut line = String::new();
    while !is_over.load(Ordering::Relaxed) {
        stream.write_all(pipeline.as_bytes()).expect("the server reads");
        let mut missing = PIPELINE;
        while missing > 0 {
            line.clear();
            assert!(reader.read_line(&mut line).expect("a reply") > 0, "the server closed the connection");
            let count = match line.trim_end() {
                "*18" => &replies.decided,
                refused if refused.starts_with("-OVERLOADED ") => &replies.overloaded,
                _ => continue,
            };
            count.fetch_add(1, Ordering::Relaxed);
            missing -= 1;
        }
    }
}

/// One check of the victim; whether it was allowed, and by what.
fn check(stream: &mut TcpStream, token: &str) -> (bool, bool) {
    let body = r#"{"attributes":{"action":"log-in","user":"jane"}}"#;
    let head = format!(
        "POST /v1/check HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\ncontent-type: \
         application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).expect("the server reads");
    let mut response = Vec::new();
    let mut bytes = [0; 4_096];
    loop {
        let len = stream.read(&mut bytes).expect("a response");
        assert!(len > 0, "the server closed the connection");
        response.extend_from_slice(&bytes[..len]);
        let text = String::from_utf8_lossy(&response);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let len: usize = head
                .lines()
                .find_map(|line| {
                    line.to_ascii_lowercase().strip_prefix("content-length: ").map(str::to_owned)
                })
                .and_then(|len| len.parse().ok())
                .expect("a length");
            if body.len() >= len {
                return (text.starts_with("HTTP/1.1 200"), body.contains(r#""source":"fallback""#));
            }
        }
    }
}

/// The run that admitted 6,005 requests instead of 2.
#[test]
fn a_blast_of_one_caller_leaves_the_rules_of_another_on_the_store() {
    let redis = Server::start(Flavour::Redis70).expect("a server starts");
    let proxy = FaultProxy::start(redis.port(), 7).expect("a proxy starts");
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("a file can be written");
        path.to_str().expect("text").to_owned()
    };
    let ((blaster, blaster_line), (victim, victim_line)) = (token("blaster"), token("victim"));
    let config = write("tollgate.yaml", &format!("tokens:\n{blaster_line}\n{victim_line}\n"));
    let (rules, key) = (write("rules.yaml", RULES), write("key", &"5e".repeat(32)));
    let server = Serving::start(
        env!("CARGO_BIN_EXE_tollgate"),
        &[
            "--config",
            &config,
            "--rules",
            &rules,
            "--hash-key-file",
            &key,
            "--store",
            &proxy.url(),
            "--threads",
            "1",
            "--store-deadline",
            "500ms",
        ],
    );
    let mut stream = connect(server.http);
    // The scripts are loaded before the line is slow.
    let mut allowed = usize::from(check(&mut stream, &victim).0);
    let slow = Line { delay: Duration::ZERO, bytes_per_sec: NonZeroU32::new(BYTES_PER_SEC) };
    proxy.set(Faults { replies: slow, ..Faults::default() }).expect("a fault can be set");

    let (is_over, replies) = (Arc::new(AtomicBool::new(false)), Arc::<Replies>::default());
    let blasters: Vec<_> = (0..CONNECTIONS)
        .map(|number| {
            let (is_over, replies, token, resp) =
                (Arc::clone(&is_over), Arc::clone(&replies), blaster.clone(), server.resp);
            thread::spawn(move || blast(resp, &token, number, &is_over, &replies))
        })
        .collect();
    let deadline = Instant::now() + Duration::from_secs(30);
    while replies.decided.load(Ordering::Relaxed) + replies.overloaded.load(Ordering::Relaxed) < 1_000 {
        assert!(Instant::now() < deadline, "the blast runs");
        thread::sleep(Duration::from_millis(5));
    }
    let (mut fallbacks, mut worst) = (0, Duration::ZERO);
    for _ in 0..CHECKS {
        let started = Instant::now();
        let (is_allowed, is_fallback) = check(&mut stream, &victim);
        worst = worst.max(started.elapsed());
        allowed += usize::from(is_allowed);
        fallbacks += usize::from(is_fallback);
    }
    is_over.store(true, Ordering::Relaxed);
    blasters.into_iter().for_each(|blaster| blaster.join().expect("a blaster ends"));
    let (decided, overloaded) =
        (replies.decided.load(Ordering::Relaxed), replies.overloaded.load(Ordering::Relaxed));
    println!(
        "blast: {decided} decided, {overloaded} refused as overloaded; victim: {CHECKS} checks, {allowed} admitted of 2, \
         {fallbacks} by the failure policy, slowest {worst:?}"
    );
    assert!(proxy.injected().slow_replies > 0, "the line was slow");
    assert!(decided > 0, "the blast got its share");
    assert_eq!((allowed, fallbacks), (2, 0), "the rule of the victim stayed on the store");
}
