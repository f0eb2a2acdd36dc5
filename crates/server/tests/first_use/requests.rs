//! Requests to a server, over HTTP and the Redis protocol.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

use tollgate_testkit::redis::{Flavour, Server};

use super::*;

/// Sends an inline command; returns the lines of its reply that are read at once.
fn resp(server: &Serving, command: &str, lines: usize) -> Vec<String> {
    let mut stream = TcpStream::connect(server.resp).expect("the server listens");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a socket");
    stream.write_all(format!("{command}\r\n").as_bytes()).expect("the server reads");
    let reader = BufReader::new(stream);
    reader.lines().take(lines).map(|line| line.expect("a line")).collect()
}

#[test]
fn numbers_and_strings_of_the_same_text_are_one_subject() {
    let folder = folder();
    let server = start(&["--rules", &put(folder.path(), "rules.yaml", RULES)]);
    let search = |user: Value| {
        post(&server, "/v1/check", &json!({ "action": "search", "tenant": 7, "user": user })).status
    };
    assert_eq!([search(json!(42)), search(json!("42")), search(json!(42))], [200, 200, 429]);
    let fraction = post(&server, "/v1/check", &json!({ "action": "search", "tenant": 7.5 }));
    assert_eq!((fraction.status, &fraction.body["code"]), (400, &json!("bad-request")));
}

#[test]
fn unmatched_refuse_answers_403_and_is_counted() {
    let folder = folder();
    let refusing = RULES.replace("version: 1\n", "version: 1\nunmatched: refuse\n");
    let server = start(&["--rules", &put(folder.path(), "rules.yaml", &refusing)]);
    let refused = post(&server, "/v1/check", &json!({ "action": "unheard-of" }));
    assert_eq!((refused.status, &refused.body["code"]), (403, &json!("unmatched")), "{}", refused.body);
    assert_eq!((&refused.body["allowed"], &refused.body["source"]), (&json!(false), &json!("unmatched")));
    assert!(!refused.head.contains("retry-after"), "waiting does not help: {}", refused.head);
    let authorized = get(&server, "/v1/authorize?attribute=action:unheard-of");
    assert_eq!((authorized.status, &authorized.body["code"]), (403, &json!("unmatched")));
    let reply = resp(&server, "TG.CHECK action unheard-of", 4);
    assert_eq!(reply[1..], ["$7", "allowed", ":0"]);
    let metrics = get(&server, "/metrics").body;
    let line = r#"rate_limit_ruleless_total{reason="unmatched_refused"} 3"#;
    assert!(metrics.as_str().is_some_and(|text| text.contains(line)), "{metrics}");
    assert_eq!(get(&server, "/v1/rules").body["unmatched"], "refuse");
}

#[test]
fn a_transport_without_receipts_takes_no_lease() {
    let folder = folder();
    let server = start(&["--rules", &put(folder.path(), "rules.yaml", RULES)]);
    let authorized = get(&server, "/v1/authorize?attribute=action:export&attribute=tenant:t");
    assert_eq!((authorized.status, &authorized.body["code"]), (403, &json!("lease-without-receipt")));
    let denied = get(&server, "/v1/authorize?attribute=action:export&attribute=tenant:t&deny_status=401");
    assert_eq!(denied.status, 401);
    assert_eq!(server.wait_for("lease_refused")["rule"], "exports");
    // Nothing holds the lease, and /v1/leases returns the receipt that releases it.
    let lease = post(&server, "/v1/leases", &json!({ "action": "export", "tenant": "t" }));
    assert_eq!((lease.status, &lease.body["lease_ms"]), (200, &json!(3_600_000)), "{}", lease.body);
    assert!(lease.body["receipt"].is_string() && lease.body["expires_at_ms"].is_u64());
    let refused = post(&server, "/v1/leases", &json!({ "action": "export", "tenant": "t" }));
    assert_eq!((refused.status, &refused.body["lease_ms"]), (429, &Value::Null));
    // Other rules are checked as before.
    assert_eq!(resp(&server, "TG.CHECK action search tenant t user u", 4)[3], ":1");
}

#[test]
fn a_missing_subject_is_named() {
    let folder = folder();
    let server = start(&["--rules", &put(folder.path(), "rules.yaml", RULES)]);
    let refused = post(&server, "/v1/check", &json!({ "action": "search", "tenant": "t" }));
    assert_eq!((refused.status, &refused.body["code"]), (403, &json!("missing-subject")));
    let detail = "the rule requires the attribute tenant, and user or ip, which the request does not have";
    assert_eq!(refused.body["detail"], detail);
}

#[test]
fn a_refusal_because_the_store_is_down_has_a_retry_after() {
    let mut redis = Server::start(Flavour::Redis70).expect("a server starts");
    let folder = folder();
    let (rules, key) = (put(folder.path(), "rules.yaml", RULES), put(folder.path(), "key", KEY));
    let url = redis.url();
    let server = start(&["--rules", &rules, "--store", &url, "--hash-key-file", &key]);
    redis.kill9().expect("it can be killed");
    let search = json!({ "action": "search", "tenant": "t", "user": "u" });
    let refused = post(&server, "/v1/check", &search);
    assert_eq!((refused.status, &refused.body["source"]), (503, &json!("fallback")), "{}", refused.body);
    assert!(refused.head.contains("\r\nretry-after: 1\r\n"), "{}", refused.head);
    // A record has no failure policy: it is an error, which has the field too.
    let body = json!({ "attributes": search, "cost": 1, "id": "once" }).to_string();
    let url = format!("http://{}/v1/record", server.http);
    let failed = curl(&["-H", "content-type: application/json", "-d", &body, &url]);
    assert_eq!((failed.status, &failed.body["code"]), (503, &json!("store-unavailable")));
    assert!(failed.head.contains("\r\nretry-after: 1\r\n"), "{}", failed.head);
}

#[test]
fn shadow_refusals_are_logged() {
    let folder = folder();
    let server = start(&["--rules", &put(folder.path(), "rules.yaml", RULES)]);
    for user in ["a", "b"] {
        let search = json!({ "action": "search", "tenant": "t", "user": user });
        assert_eq!(post(&server, "/v1/check", &search).status, 200);
    }
    let logged = server.wait_for("shadow_refused");
    assert_eq!((&logged["rule"], &logged["subject_kind"]), (&json!("trial"), &json!("tenant")));
    assert_eq!((&logged["limit"], &logged["remaining"]), (&json!(1), &json!(0)));
    assert!(logged["retry_after_ms"].as_u64() > Some(0), "{logged}");
}

#[test]
fn the_log_the_command_and_the_api_name_a_subject_alike() {
    let folder = folder();
    let (rules, key) = (put(folder.path(), "rules.yaml", RULES), put(folder.path(), "key", KEY));
    let server = start(&["--rules", &rules, "--hash-key-file", &key]);
    let search = json!({ "action": "search", "tenant": "t", "user": "u" });
    for _ in 0..3 {
        post(&server, "/v1/check", &search);
    }
    let logged = server.wait_for("refused");
    let api = post(&server, "/v1/explain", &search).body;
    let args =
        ["explain", "--rules", &rules, "--hash-key-file", "key", "action=search", "tenant=t", "user=u"];
    let printed = tollgate(folder.path(), &args).stdout;
    let json = tollgate(folder.path(), &[&args[..], &["--format", "json"]].concat()).stdout;
    let json: Value = serde_json::from_str(&json).expect("JSON");
    let hash = logged["subject"].as_str().expect("a hash");
    assert_eq!(api["rules"][0]["subject"], hash);
    assert_eq!(json["rules"][0]["subject"]["hash_prefix"], hash);
    assert!(printed.contains(&format!("tenant t, user u ({hash})")), "{printed}");
    // The key in the store begins with it too.
    assert!(printed.contains(&format!(":{hash}")), "{printed}");

    // The first line has the time.
    let lines: Vec<&str> = printed.lines().skip(1).collect();
    let of_api: Vec<&str> =
        api["lines"].as_array().expect("lines").iter().skip(1).filter_map(Value::as_str).collect();
    assert_eq!(of_api, lines);
}

#[test]
fn the_rules_page_shows_what_the_file_says() {
    let folder = folder();
    let file = RULES.replace(
        "mode: shadow, limit: { fixed-window: 1/h }",
        "rollout: 12.5%, limit: { fixed-window: 1/h }",
    );
    let server = start(&["--rules", &put(folder.path(), "rules.yaml", &file)]);
    let rules = get(&server, "/v1/rules").body;
    let rule = &rules["rules"][0];
    let shown = ["match", "per", "written", "window_ms", "rollout", "line"].map(|name| rule[name].clone());
    assert_eq!(
        shown,
        [
            json!("action is search"),
            json!("tenant, user | ip"),
            json!("sliding-log: 2/h"),
            json!(3_600_000),
            json!("100%"),
            json!(3)
        ]
    );
    let change = &rule["overrides"][0];
    let shown = ["when", "written", "limit", "until", "reason"].map(|name| change[name].clone());
    let expected =
        ["plan is pro", "sliding-log: 20/h", "20", "2099-01-01T00:00:00Z", "launch"].map(|text| json!(text));
    assert_eq!(shown.clone().map(|value| json!(value.to_string().trim_matches('"'))), expected);
    assert_eq!(rules["rules"][1]["rollout"], "12.5%");
}
