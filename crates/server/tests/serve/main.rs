//! `tollgate serve` as a process: start, metrics, reload, shutdown.

mod capture;
mod collector;
mod monitoring;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use collector::Collector;
use serde_json::{Value, json};
use tollgate_testkit::redis::{Certificates, Flavour, Server};
use tollgate_testkit::serving::Serving;
use tollgate_testkit::tools::Tool;

const THREE: &str =
    "version: 1\nrules:\n  - { id: three, per: [tenant, api_key | user], limit: { sliding-log: 3/h } }\n";
const FIVE: &str =
    "version: 1\nrules:\n  - { id: five, per: [tenant, api_key | user], limit: { sliding-log: 5/h } }\n";
const KEY: &str = "6a4c1f0d9e8b7a695847362514039281706f5e4d3c2b1a0918f7e6d5c4b3a291";

fn start(args: &[&str]) -> Serving {
    Serving::start(env!("CARGO_BIN_EXE_tollgate"), args)
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

fn put(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    fs::write(&path, text).expect("a file can be written");
    path.to_str().expect("a path of text").to_owned()
}

/// Sends a request with curl. Returns the status and the body.
fn curl(args: &[&str]) -> (u16, String) {
    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--max-time", "20", "--write-out", "\n%{http_code}"])
        .args(args)
        .output()
        .expect("curl runs");
    let text = String::from_utf8(output.stdout).expect("text");
    let (body, status) = text.rsplit_once('\n').expect("a status");
    (status.parse().expect("a number"), body.to_owned())
}

fn check(server: &Serving, attributes: &Value) -> (u16, Value) {
    let body = json!({ "attributes": attributes }).to_string();
    let url = format!("http://{}/v1/check", server.http);
    let (status, body) = curl(&["-H", "content-type: application/json", "-d", &body, &url]);
    (status, serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}")))
}

fn get(server: &Serving, path: &str) -> (u16, String) {
    curl(&[&format!("http://{}{path}", server.http)])
}

fn rules(server: &Serving) -> Value {
    serde_json::from_str(&get(server, "/v1/rules").1).expect("an object")
}

#[test]
fn without_arguments_it_serves_and_its_suggestions_work() {
    let server = Serving::start_with_text_log(env!("CARGO_BIN_EXE_tollgate"), &[]);
    let text = server.text();
    let commands: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|line| line.starts_with("curl ") || line.starts_with("redis-cli "))
        .collect();
    assert_eq!(commands.len(), 3, "{text}");
    let answers: Vec<String> = commands
        .iter()
        .map(|command| {
            let output = Command::new("sh").args(["-c", command]).output().expect("a shell");
            assert!(output.status.success(), "{command}: {output:?}");
            String::from_utf8(output.stdout).expect("text")
        })
        .collect();
    assert!(
        answers[0].starts_with("HTTP/1.1 200 OK\r\n") && answers[0].contains("\"allowed\":true"),
        "{}",
        answers[0]
    );
    assert!(
        answers[1].contains("\"version\":0") && answers[1].contains("requests-per-client"),
        "{}",
        answers[1]
    );
    assert_eq!(answers[2], "0\n16\n15\n-1\n2\n");
}

#[test]
fn rules_are_reloaded_and_invalid_ones_change_nothing() {
    let folder = folder();
    let file = put(folder.path(), "rules.yaml", THREE);
    let server = start(&["--rules", &file]);
    let before = rules(&server);
    assert_eq!((&before["version"], &before["rules"][0]["id"]), (&json!(0), &json!("three")));
    let who = json!({ "tenant": "t", "user": "u" });
    assert_eq!(check(&server, &who).1["remaining"], 2);

    put(folder.path(), "rules.yaml", &THREE.replace("sliding-log", "sliding-lag"));
    let refused = server.wait_for("rules_refused");
    assert!(refused["message"].as_str().is_some_and(|text| text.contains("sliding-lag")), "{refused}");
    let kept = rules(&server);
    assert_eq!((&kept["version"], &kept["fingerprint"]), (&json!(0), &before["fingerprint"]));
    assert!(kept["refused"].as_str().is_some_and(|text| text.contains("sliding-log")), "{kept}");
    assert_eq!(check(&server, &who).1["remaining"], 1);

    fs::remove_file(&file).expect("it is there");
    assert!(
        server.wait_for("rules_refused")["message"].as_str().is_some_and(|text| text.contains("cannot read"))
    );
    assert_eq!(check(&server, &who).1["remaining"], 0);

    put(folder.path(), "rules.yaml", FIVE);
    assert_eq!(server.wait_for("rules_replaced")["version"], 1);
    let after = rules(&server);
    assert_eq!(
        (&after["version"], &after["rules"][0]["id"], &after["refused"]),
        (&json!(1), &json!("five"), &Value::Null)
    );
    assert_eq!(check(&server, &who).1["remaining"], 4);
}

#[test]
fn a_folder_of_rules_is_one_rules_file_and_is_reloaded() {
    let folder = folder();
    fs::create_dir(folder.path().join("rules")).expect("a folder");
    let rules_of = |name: &str, text: &str| put(&folder.path().join("rules"), name, text);
    rules_of("a.yaml", THREE);
    let path = folder.path().join("rules").to_str().expect("text").to_owned();
    let server = start(&["--rules", &path]);
    assert_eq!(rules(&server)["rules"].as_array().map(Vec::len), Some(1));
    // A file is added, and the problem of a later one names its place.
    let second = "version: 1\nrules:\n  - { id: login, match: { action: login }, per: user, limit: { sliding-log: 5/h } }\n";
    rules_of("b.yaml", second);
    assert_eq!(server.wait_for("rules_replaced")["version"], 1);
    let both = rules(&server);
    assert_eq!((&both["rules"][0]["id"], &both["rules"][1]["id"]), (&json!("three"), &json!("login")));
    assert!(both["rules"][1]["file"].as_str().is_some_and(|file| file.ends_with("rules/b.yaml")), "{both}");
    assert_eq!(
        (&both["rules"][1]["line"], &both["rules"][1]["written"]),
        (&json!(3), &json!("sliding-log: 5/h"))
    );
    rules_of("c.yaml", second);
    let refused = server.wait_for("rules_refused")["message"].to_string();
    for place in ["duplicate rule id", "c.yaml:3", "b.yaml:3"] {
        assert!(refused.contains(place), "{place}: {refused}");
    }
    assert_eq!(rules(&server)["version"], 1);
    fs::remove_file(folder.path().join("rules/c.yaml")).expect("it is there");
    fs::remove_file(folder.path().join("rules/b.yaml")).expect("it is there");
    server.wait_for("rules_replaced");
    assert_eq!(rules(&server)["rules"].as_array().map(Vec::len), Some(1));
}

#[test]
fn sighup_reloads_files() {
    let folder = folder();
    let file = put(folder.path(), "rules.yaml", THREE);
    let server = start(&["--rules", &file]);
    server.signal("HUP");
    assert_eq!(server.wait_for("access_replaced")["level"], "INFO");
    assert_eq!(rules(&server)["version"], 0, "the same rules are not replaced");
}

#[test]
fn sigterm_answers_requests_in_flight_and_exits_with_0() {
    let mut server = start(&[]);
    assert_eq!(get(&server, "/readyz").0, 200);
    server.signal("TERM");
    assert_eq!(server.wait_for("ended")["all_answered"], true);
    assert_eq!(server.exit_code(), Some(0));
}

#[test]
fn certificates_are_sent_required_and_replaced() {
    let (folder, other) = (folder(), self::folder());
    let certificates = Certificates::generate(folder.path()).expect("certificates");
    let path = |path: &Path| path.to_str().expect("text").to_owned();
    let (certificate, key) = (path(certificates.server()), path(certificates.key()));
    let authority = path(certificates.authority());
    let server = start(&[
        "--tls-certificate",
        &certificate,
        "--tls-key",
        &key,
        "--tls-client-ca",
        &authority,
        "--anonymous",
        "none",
        "--certified",
        "check,read",
    ]);
    let url = format!("https://{}/v1/rules", server.http);
    let (client, client_key) = (path(certificates.client()), path(certificates.client_key()));
    let shown = ["--cacert", &authority, "--cert", &client, "--key", &client_key, &url];
    assert_eq!(curl(&shown).0, 200);
    assert_eq!(curl(&["--cacert", &authority, &url]).0, 0, "a client without a certificate is refused");
    let port = server.resp.port().to_string();
    let redis_cli = |more: &[&str]| {
        let output = Command::new("redis-cli")
            .args(["-h", "127.0.0.1", "-p", &port, "--tls", "--cacert", &authority])
            .args(more)
            .arg("PING")
            .output()
            .expect("redis-cli runs");
        String::from_utf8(output.stdout).expect("text")
    };
    assert_eq!(redis_cli(&["--cert", &client, "--key", &client_key]), "PONG\n");
    assert_ne!(redis_cli(&[]), "PONG\n");

    // After the replacement, a client that trusts only the first authority rejects the new certificate.
    let next = Certificates::generate(other.path()).expect("certificates");
    fs::copy(next.key(), &key).expect("a file can be copied");
    fs::copy(next.server(), &certificate).expect("a file can be copied");
    server.wait_for("certificates_replaced");
    assert_eq!(curl(&shown).0, 0);
    let next_authority = path(next.authority());
    assert_eq!(curl(&["--cacert", &next_authority, "--cert", &client, "--key", &client_key, &url]).0, 200);

    fs::write(&certificate, "no certificate").expect("a file can be written");
    server.wait_for("certificates_refused");
    assert_eq!(curl(&["--cacert", &next_authority, "--cert", &client, "--key", &client_key, &url]).0, 200);
}

#[test]
fn refusals_are_logged_without_the_subject() {
    let folder = folder();
    let file = put(folder.path(), "rules.yaml", THREE);
    let server = start(&["--rules", &file, "--log-refusals-per-second", "1"]);
    let who = json!({ "tenant": "acme\nfake", "api_key": "k-secret-1", "ip": "203.0.113.9" });
    for _ in 0..6 {
        check(&server, &who);
    }
    let logged = server.wait_for("refused");
    let fields = ["rule", "tenant", "subject_kind", "algorithm", "limit", "remaining", "edge"];
    assert_eq!(
        fields.map(|field| logged[field].clone()),
        [
            json!("three"),
            json!("acme\\nfake"),
            json!("tenant+api_key"),
            json!("sliding-log"),
            json!(3),
            json!(0),
            json!("http")
        ]
    );
    let subject = logged["subject"].as_str().expect("a hash");
    assert!(subject.len() == 10 && logged["retry_after_ms"].as_u64() > Some(3_000_000), "{logged}");
    server.signal("TERM");
    server.wait_for("ended");
    let all = server.text();
    assert!(!all.contains("k-secret-1") && !all.contains("203.0.113.9"), "{all}");
    assert!(all.matches("\"event\":\"refused\"").count() < 3, "at most one a second:\n{all}");
}

#[test]
fn prometheus_reads_the_metrics_and_their_number_does_not_grow_with_subjects() {
    let folder = folder();
    let two =
        format!("{THREE}  - {{ id: trial, mode: shadow, per: user, limit: {{ fixed-window: 1/h }} }}\n");
    let file = put(folder.path(), "rules.yaml", &two);
    let server = start(&["--rules", &file]);
    let ask = |user: &str| check(&server, &json!({ "tenant": "t", "user": user })).0;
    assert_eq!([200, 200, 200, 429, 429], [(); 5].map(|()| ask("u")));
    let series = |text: &str| text.lines().filter(|line| !line.starts_with('#')).count();
    let (status, first) = get(&server, "/metrics");
    assert_eq!(status, 200);
    for line in [
        r#"rate_limit_checks_total{rule="three",algorithm="sliding-log",outcome="allowed"} 3"#,
        r#"rate_limit_checks_total{rule="three",algorithm="sliding-log",outcome="refused"} 2"#,
        r#"rate_limit_rejected_total{rule="three",subject_kind="tenant+user",reason="limit"} 2"#,
        r#"rate_limit_shadow_rejected_total{rule="trial"} 4"#,
        r#"rate_limit_requests_total{edge="http"} 5"#,
        r#"rate_limit_keys 2"#,
    ] {
        assert!(first.lines().any(|found| found == line), "{line} in\n{first}");
    }
    for number in 0..20 {
        ask(&format!("other {number}"));
    }
    let (_, second) = get(&server, "/metrics");
    assert_eq!(series(&first), series(&second), "{second}");
    let page = put(folder.path(), "metrics.txt", &second);
    let mut promtool = Tool::Promtool.command();
    let output = promtool
        .args(["check", "metrics"])
        .stdin(fs::File::open(page).expect("it is there"))
        .output()
        .expect("promtool runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn two_servers_share_a_limit_and_report_that_the_store_is_down() {
    let mut redis = Server::start(Flavour::Redis70).expect("a server starts");
    let folder = folder();
    let open = THREE.replace("limit:", "on_failure: degraded, limit:");
    let (file, key) = (put(folder.path(), "rules.yaml", &open), put(folder.path(), "key", KEY));
    let url = redis.url();
    let args = ["--rules", &file, "--store", &url, "--hash-key-file", &key, "--store-deadline", "2s"];
    let (one, other) = (start(&args), start(&args));
    let who = json!({ "tenant": "t", "user": "u" });
    let remaining = [&one, &other, &one, &other].map(|server| check(server, &who).1["remaining"].clone());
    assert_eq!(remaining, [json!(2), json!(1), json!(0), json!(0)]);

    redis.kill9().expect("it can be killed");
    let (status, degraded) = check(&one, &who);
    assert_eq!((status, &degraded["degraded"], &degraded["source"]), (200, &json!(true), &json!("fallback")));
    one.wait_for("store_failed");
    let (status, ready) = get(&one, "/readyz");
    let ready: Value = serde_json::from_str(&ready).expect("an object");
    assert_eq!((status, &ready["store"]["up"]), (200, &json!(false)), "{ready}");
    let (_, metrics) = get(&one, "/metrics");
    for line in [
        r#"rate_limit_fallback_total{rule="three",policy="degraded",outcome="allowed"} 1"#,
        r#"rate_limit_degraded_total 1"#,
        r#"rate_limit_breaker_open{server="0"} 1"#,
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} in\n{metrics}");
    }
}

#[test]
fn a_server_starts_while_its_store_is_down_and_uses_it_when_it_is_back() {
    let mut redis = Server::start(Flavour::Redis70).expect("a server starts");
    let folder = folder();
    let open = THREE.replace("limit:", "on_failure: degraded, limit:");
    let (file, key) = (put(folder.path(), "rules.yaml", &open), put(folder.path(), "key", KEY));
    let url = redis.url();
    redis.kill9().expect("it can be killed");
    let server =
        start(&["--rules", &file, "--store", &url, "--hash-key-file", &key, "--store-deadline", "2s"]);
    // Logged before the server is ready.
    let log = server.text();
    let events = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let down = events.into_iter().find(|event| event["event"] == "store_down").expect("an event");
    assert!(down["cause"].as_str().is_some_and(|cause| !cause.is_empty()), "{down}");
    let who = json!({ "tenant": "t", "user": "u" });
    let (status, answer) = check(&server, &who);
    assert_eq!((status, &answer["source"], &answer["degraded"]), (200, &json!("fallback"), &json!(true)));
    let (status, ready) = get(&server, "/readyz");
    let ready: Value = serde_json::from_str(&ready).expect("an object");
    assert_eq!((status, &ready["store"]["up"]), (200, &json!(false)), "{ready}");
    assert!(get(&server, "/metrics").1.lines().any(|line| line == "rate_limit_store_up 0"));

    redis.restart().expect("it starts again");
    let back = server.wait_for("store_back");
    assert!(back["down_ms"].as_u64().is_some_and(|down_ms| down_ms > 0), "{back}");
    let (status, answer) = check(&server, &who);
    assert_eq!((status, &answer["source"], &answer["remaining"]), (200, &json!("store"), &json!(2)));
}

#[test]
fn what_a_quota_admitted_without_redis_is_booked_there_when_it_is_back() {
    let mut redis = Server::start(Flavour::Redis70).expect("a server starts");
    let folder = folder();
    let rules = "version: 1\nrules:\n  - { id: daily, per: user, limit: { quota: 100/day }, on_failure: local 50% }\n";
    let (file, key) = (put(folder.path(), "rules.yaml", rules), put(folder.path(), "key", KEY));
    let url = redis.url();
    let server =
        start(&["--rules", &file, "--store", &url, "--hash-key-file", &key, "--store-deadline", "2s"]);
    let metric = |line: &str| get(&server, "/metrics").1.lines().any(|found| found == line);
    redis.kill9().expect("it can be killed");
    // Until the server knows it, a check may have been applied.
    check(&server, &json!({ "user": "first" }));
    let began = Instant::now();
    while !metric("rate_limit_store_up 0") {
        assert!(began.elapsed() < Duration::from_secs(20), "the server did not notice");
        std::thread::sleep(Duration::from_millis(20));
    }
    let who = json!({ "user": "u" });
    for _ in 0..5 {
        let (status, answer) = check(&server, &who);
        assert_eq!((status, &answer["source"]), (200, &json!("fallback")), "{answer}");
    }
    assert!(metric(r#"rate_limit_fallback_total{rule="daily",policy="local",outcome="allowed"} 6"#));
    let body = json!({ "attributes": { "user": "other" } }).to_string();
    let url = format!("http://{}/v1/check", server.http);
    let (_, fields) = curl(&["-D", "-", "-H", "content-type: application/json", "-d", &body, &url]);
    assert!(fields.contains("x-ratelimit-fallback: local"), "{fields}");
    // The caller of a record sends it again.
    let body = json!({ "attributes": { "user": "other" }, "cost": 2, "id": "r1" }).to_string();
    let url = format!("http://{}/v1/record", server.http);
    let (status, failed) = curl(&["-D", "-", "-H", "content-type: application/json", "-d", &body, &url]);
    assert_eq!(status, 503, "{failed}");
    let expected = ["retry-after: 1", "store-unavailable", "send it again under the same id"];
    assert!(expected.iter().all(|text| failed.contains(text)), "{failed}");

    redis.restart().expect("it starts again");
    let posted = server.wait_for("local_admissions_posted");
    assert!(posted["posted_units"].as_u64().is_some_and(|units| units >= 6), "{posted}");
    let (_, answer) = check(&server, &who);
    assert_eq!((&answer["source"], &answer["remaining"]), (&json!("store"), &json!(94)), "{answer}");
}

#[test]
fn keys_of_callers_are_counted_in_the_namespace_of_the_rules() {
    let redis = Server::start(Flavour::Redis70).expect("a server starts");
    let (folder, url) = (folder(), redis.url());
    let key = put(folder.path(), "key", KEY);
    for (namespace, remaining) in [("shop", 4), ("bank", 4), ("shop", 3)] {
        let rules = THREE.replacen("rules:", &format!("namespace: {namespace}\nrules:"), 1);
        let file = put(folder.path(), &format!("{namespace}.yaml"), &rules);
        let args = ["--rules", &file, "--store", &url, "--hash-key-file", &key, "--store-deadline", "5s"];
        let server = start(&args);
        let mut ask = Command::new("redis-cli");
        ask.args(["-p", &server.resp.port().to_string(), "CL.THROTTLE", "u", "4", "5", "3600"]);
        let logged = ask.output().expect("redis-cli runs");
        let logged: Vec<&str> = std::str::from_utf8(&logged.stdout).expect("text").lines().collect();
        assert_eq!(logged[2], remaining.to_string(), "{namespace}: {logged:?}");
    }
}

#[test]
fn a_check_is_a_span_in_the_trace_of_its_caller() {
    let collector = Collector::start();
    let endpoint = format!("http://{}", collector.address);
    let mut server = start(&["--traces-endpoint", &endpoint, "--traces-one-in", "1000000"]);
    let url = format!("http://{}/v1/check", server.http);
    let ask = |parent: &str| {
        let header = format!("traceparent: {parent}");
        let body = r#"{"attributes":{"user":"u"}}"#;
        assert_eq!(curl(&["-H", "content-type: application/json", "-H", &header, "-d", body, &url]).0, 200);
    };
    let trace = "0af7651916cd43dd8448eb211c80319c";
    // The first check is sampled (one in a million). Of the others, only the one with a traced caller has a span.
    ask("none");
    ask(&format!("00-{trace}-b7ad6b7169203331-01"));
    ask(&format!("00-{trace}-b7ad6b7169203331-00"));
    server.signal("TERM");
    let spans = [collector.next(), collector.next()];
    assert_eq!(server.exit_code(), Some(0));
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert_eq!(spans[0].parent_span_id, Vec::<u8>::new());
    assert_eq!(
        (hex(&spans[1].trace_id), hex(&spans[1].parent_span_id)),
        (trace.to_owned(), "b7ad6b7169203331".to_owned())
    );
    for span in spans {
        let names: Vec<&str> = span.attributes.iter().map(|attribute| attribute.key.as_str()).collect();
        assert_eq!(span.name, "tollgate.check");
        assert_eq!(names, ["tollgate.edge", "tollgate.allowed", "tollgate.degraded", "tollgate.rule"]);
        assert!(span.end_time_unix_nano >= span.start_time_unix_nano);
    }
}

#[test]
fn servers_that_share_a_store_notice_another_hash_key_and_other_rules() {
    let redis = Server::start(Flavour::Redis70).expect("a server starts");
    let (folder, url) = (folder(), redis.url());
    let (three, five) = (put(folder.path(), "three.yaml", THREE), put(folder.path(), "five.yaml", FIVE));
    let (key, other) = (put(folder.path(), "key", KEY), put(folder.path(), "other", &KEY.replace('6', "7")));
    let shared = |rules, key| ["--rules", rules, "--store", &url, "--hash-key-file", key];
    let first = start(&shared(three.as_str(), key.as_str()));

    let refused = Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args(["serve", "--http", "127.0.0.1:0", "--resp", "off"])
        .args(shared(three.as_str(), other.as_str()))
        .output()
        .expect("the binary runs");
    let stderr = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("another hash key") && stderr.contains("previous_hash_key_file"), "{stderr}");
    assert!(!stderr.contains(KEY), "{stderr}");

    let second = start(&shared(five.as_str(), key.as_str()));
    let own = |server: &Serving| {
        let (status, ready) = get(server, "/readyz");
        assert_eq!(status, 200, "a server with other rules is ready");
        serde_json::from_str::<Value>(&ready).expect("an object")
    };
    let logged = second.wait_for("other_rules");
    assert_eq!(logged["theirs"], own(&first)["rules"]["fingerprint"]);
    let ready = own(&second);
    assert_eq!(ready["fleet"]["other_rules"], own(&first)["rules"]["fingerprint"]);
    assert_eq!(ready["fleet"]["other_hash_key"], Value::Null);
    assert!(get(&second, "/metrics").1.contains("rate_limit_fleet_differs{what=\"rules\"} 1\n"));
    assert_eq!(first.wait_for("other_rules")["theirs"], ready["rules"]["fingerprint"]);
}

#[test]
fn after_a_flush_a_server_with_a_wrong_hash_key_does_not_start_and_a_right_one_does() {
    let redis = Server::start(Flavour::Redis70).expect("a server starts");
    let (folder, url) = (folder(), redis.url());
    let rules = put(folder.path(), "three.yaml", THREE);
    let (key, other) = (put(folder.path(), "key", KEY), put(folder.path(), "other", &KEY.replace('6', "7")));
    let shared = |key| ["--rules", &rules, "--store", &url, "--hash-key-file", key];
    let first = start(&shared(&key));
    redis.admin().expect("a connection").flushall().expect("it is emptied");
    let rogue = Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args(["serve", "--http", "127.0.0.1:0", "--resp", "off"])
        .args(shared(&other))
        .output()
        .expect("the binary runs");
    let said = String::from_utf8_lossy(&rogue.stderr);
    assert_eq!(rogue.status.code(), Some(2), "{said}");
    assert!(said.contains("another hash key"), "{said}");
    first.wait_for("hash_key_restored");
    let second = start(&shared(&key));
    for server in [&first, &second] {
        let (_, ready) = get(server, "/readyz");
        let ready: Value = serde_json::from_str(&ready).expect("an object");
        assert_eq!(ready["fleet"]["hash_key"], "same", "{ready}");
    }
}
