//! Captures of a real server, replayed: the refusals are the same, rule by rule and subject by subject.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use tollgate_testkit::serving::Serving;

use super::{KEY, folder, get, put, start};

const RULES: &str = "\
version: 1
attributes: { user: { normalize: [lower, trim] }, tenant: {}, plan: {} }
rules:
  - { id: bucket, match: { path: '/v1/{*rest}' }, per: user, limit: { token-bucket: 5/s, burst: 8 } }
  - { id: window, per: [tenant, user], limit: { sliding-window: 25/min, buckets: 6 } }
  - { id: log, match: { method: POST }, per: user, limit: { sliding-log: 20/min }, cost: { by: { tenant: { acme: 2 } } } }
  - { id: day, per: tenant, limit: { quota: 200/day, zone: Europe/Berlin } }
  - { id: trial, mode: shadow, per: user, limit: { fixed-window: 7/s } }
overrides:
  - { when: { tenant: acme }, rule: bucket, limit: { token-bucket: 8/s, burst: 12 } }
  - { when: { plan: pro }, rule: window, limit: { sliding-window: 40/min, buckets: 6 } }
deny: [{ when: { user: mallory } }]
";

/// A connection that sends check after check.
struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(server: &Serving) -> Client {
        let stream = TcpStream::connect(server.http).expect("it accepts");
        stream.set_nodelay(true).expect("an option");
        Client(BufReader::new(stream))
    }

    /// Returns the decision.
    fn check(&mut self, attributes: &Value, cost: Option<u64>) -> Value {
        let mut body = json!({ "attributes": attributes });
        if let Some(cost) = cost {
            body["cost"] = cost.into();
        }
        let body = body.to_string();
        let request = format!(
            "POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        self.0.get_mut().write_all(request.as_bytes()).expect("it is sent");
        let (mut line, mut len) = (String::new(), 0);
        while line != "\r\n" {
            line.clear();
            self.0.read_line(&mut line).expect("a header");
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                len = value.trim().parse().expect("a number");
            }
        }
        let mut body = vec![0; len];
        self.0.read_exact(&mut body).expect("a body");
        serde_json::from_slice(&body).expect("JSON")
    }
}

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

fn simulate(rules: &str, key: &str, capture: &str, more: &[&str]) -> Value {
    let args = ["simulate", "--format", "json", "--rules", rules, "--hash-key-file", key, capture];
    let output =
        Command::new(env!("CARGO_BIN_EXE_tollgate")).args(args).args(more).output().expect("the binary runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// The refusals of each rule, as the server counts them.
fn counted(server: &Serving, family: &str) -> BTreeMap<String, u64> {
    let (_, page) = get(server, "/metrics");
    let mut counts = BTreeMap::new();
    for line in page.lines().filter(|line| line.starts_with(&format!("{family}{{"))) {
        let rule = line.split("rule=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a rule");
        let value: u64 = line.rsplit(' ').next().and_then(|value| value.parse().ok()).expect("a number");
        *counts.entry(rule.to_owned()).or_default() += value;
    }
    counts.retain(|_, count| *count > 0);
    counts
}

fn simulated(report: &Value, member: &str) -> BTreeMap<String, u64> {
    let rules = report["new"]["rules"].as_array().expect("rules").iter();
    let count = |rule: &Value| {
        (rule["id"].as_str().expect("an id").to_owned(), rule[member].as_u64().expect("a number"))
    };
    rules.map(count).filter(|(_, count)| *count > 0).collect()
}

#[test]
fn a_replayed_capture_has_the_refusals_of_the_server() {
    let folder = folder();
    let (rules, key) = (put(folder.path(), "rules.yaml", RULES), put(folder.path(), "key", KEY));
    let capture = folder.path().join("capture.jsonl").to_str().expect("a path of text").to_owned();
    let mut server =
        start(&["--rules", &rules, "--hash-key-file", &key, "--capture-file", &capture, "--threads", "1"]);
    let (mut state, mut refused, mut sent) = (11, 0_u64, 0_u64);
    let mut clients: Vec<Client> = (0..4).map(|_| Client::connect(&server)).collect();
    for number in 0..6_000 {
        let draw = random(&mut state);
        let user = match draw % 50 {
            0 => "mallory".to_owned(),
            // Spellings of one account are one subject.
            1..10 => " User-1".to_owned(),
            rest => format!("user-{}", rest % 9),
        };
        let mut attributes =
            json!({ "user": user, "method": if draw.is_multiple_of(3) { "POST" } else { "GET" } });
        attributes["path"] = if draw.is_multiple_of(7) { "/v2/x" } else { "/v1/..%2fv1/search?q=1" }.into();
        attributes["tenant"] = ["acme", "zeta", "beta"][(draw >> 8) as usize % 3].into();
        if draw.is_multiple_of(5) {
            attributes["plan"] = "pro".into();
        }
        let cost = draw.is_multiple_of(11).then_some(2);
        let decision = clients[number % 4].check(&attributes, cost);
        refused += u64::from(decision["allowed"] == false);
        sent += 1;
    }
    let (of_rules, of_shadow) =
        (counted(&server, "rate_limit_rejected_total"), counted(&server, "rate_limit_shadow_rejected_total"));
    drop(clients);
    server.signal("TERM");
    assert_eq!(server.exit_code(), Some(0));
    let text = std::fs::read_to_string(&capture).expect("the capture");
    for secret in ["user-", "User-1", "acme", "zeta", "mallory"] {
        assert!(!text.contains(secret), "{secret} is in the clear");
    }
    assert!(
        text.contains("/v1/..%2fv1/search") && text.contains("\"plan\":\"pro\""),
        "paths and plans are in the clear"
    );
    let recorded = text.lines().filter(|line| line.contains("\"allowed\":false")).count() as u64;
    assert_eq!(recorded, refused, "the capture has what callers got");

    let report = simulate(&rules, &key, &capture, &[]);
    assert_eq!(
        (&report["new"]["requests"], &report["new"]["refused"]),
        (&sent.into(), &refused.into()),
        "{report:#}"
    );
    assert_eq!(report["not_simulated"], json!([]));
    assert_eq!(simulated(&report, "refused"), of_rules);
    assert_eq!(simulated(&report, "shadow_refused"), of_shadow);
    for rule in ["bucket", "window", "log", "day"] {
        assert!(of_rules.get(rule).is_some_and(|&count| count > 0), "{rule} refuses nothing: {of_rules:?}");
    }
    // With another key, values in rules cannot be compared.
    let other = put(folder.path(), "other", &"5e".repeat(32));
    let report = simulate(&rules, &other, &capture, &[]);
    let left_out = report["not_simulated"].to_string();
    assert!(left_out.contains("another hash key") && left_out.contains("(deny)"), "{left_out}");
}

#[test]
fn a_full_capture_drops_and_counts() {
    let folder = folder();
    let capture = folder.path().join("capture.jsonl");
    let path = capture.to_str().expect("a path of text");
    let mut server = start(&["--capture-file", path, "--capture-bytes-max", "65536"]);
    let mut client = Client::connect(&server);
    for number in 0..1_000 {
        client.check(&json!({ "path": format!("/{number}/{}", "x".repeat(200)) }), None);
    }
    let counts = || {
        let (_, page) = get(&server, "/metrics");
        let count = |name: &str| {
            let line = page.lines().find(|line| line.starts_with(name)).expect("it is counted");
            line.rsplit(' ').next().and_then(|value| value.parse::<u64>().ok()).expect("a number")
        };
        (count("tollgate_capture_written_total "), count("tollgate_capture_dropped_total "))
    };
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while counts().0 + counts().1 < 1_000 {
        assert!(std::time::Instant::now() < deadline, "{:?}", counts());
        std::thread::yield_now();
    }
    let (written, dropped) = counts();
    assert!(written > 100 && dropped > 100, "{written} {dropped}");
    drop(client);
    server.signal("TERM");
    assert_eq!(server.exit_code(), Some(0));
    let size = std::fs::metadata(Path::new(path)).expect("the capture").len();
    assert!(size <= 65_536, "{size}");
    let text = std::fs::read_to_string(path).expect("the capture");
    assert_eq!(text.lines().filter(|line| line.contains("\"at\":")).count() as u64, written);
}
