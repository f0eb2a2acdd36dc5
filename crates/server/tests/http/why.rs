//! References of refusals, explanations of subjects, and the subjects that are refused most.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollgate_testkit::serving::Serving;

use super::client::Client;
use super::{problem, start};

const RULES: &str = "
version: 1
rules:
  - { id: burst, match: { action: search }, per: user, limit: { token-bucket: 1/10min, burst: 2 } }
  - { id: day, match: { action: search }, per: user, limit: { fixed-window: 1/d } }
  - { id: trial, match: { action: search }, per: user, mode: shadow, limit: { fixed-window: 1/h } }
  - { id: log, match: { action: login }, per: user, limit: { sliding-log: 1/10min } }
  - { id: slide, match: { action: export }, per: user, limit: { sliding-window: 2/10min, buckets: 60 } }
  - { id: month, match: { action: chat }, per: user, limit: { quota: 3/month } }
  - { id: room, match: { action: room }, per: user, limit: { concurrency: 1, lease: 30s } }
  - { id: closed, match: { action: closed }, per: user, limit: deny }
overrides:
  - { when: { plan: pro }, rule: log, limit: { sliding-log: 2/10min }, reason: paid }
deny:
  - { when: { user: mallory }, reason: abuse }
";
/// Other numbers, and without the rule `log`.
const CHANGED: &str = "
version: 1
rules:
  - { id: day, match: { action: search }, per: user, limit: { fixed-window: 7/d } }
  - { id: month, match: { action: chat }, per: user, limit: { token-bucket: 1/s } }
";
const REFUSALS: usize = 1_000;
const TIMEOUT: Duration = Duration::from_secs(30);

fn served(rules: &str, args: &[&str]) -> (Serving, Client, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("rules.yaml");
    std::fs::write(&path, rules).expect("a file");
    let serving = start(&[&["--rules", path.to_str().expect("text")], args].concat());
    let client = Client::connect(serving.http);
    (serving, client, folder)
}

fn body(action: &str, user: &str, plan: &str) -> String {
    json!({ "attributes": { "action": action, "user": user, "plan": plan } }).to_string()
}

fn check(client: &mut Client, action: &str, user: &str) -> Value {
    client.post("/v1/check", &body(action, user, "free")).json()
}

fn explain(client: &mut Client, reference: &Value) -> Value {
    let answer = client.post("/v1/explain", &json!({ "ref": reference }).to_string());
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["refusal"].clone()
}

/// What the client received, and what a reference must reproduce.
fn received(decision: &Value) -> Value {
    let refused: Vec<Value> = decision["rules"]
        .as_array()
        .expect("rules")
        .iter()
        .filter(|rule| rule["allowed"] == false && rule["blocking"] == true)
        .map(of_rule)
        .collect();
    json!({ "headline": of_rule(decision), "refused": refused.len(), "source": decision["source"],
        "exactness": decision["exactness"] })
}

fn of_rule(rule: &Value) -> Value {
    ["rule", "algorithm", "limit", "remaining", "retry_after_ms", "reset_at_ms"]
        .map(|name| rule[name].clone())
        .to_vec()
        .into()
}

#[test]
fn references_reproduce_a_thousand_refusals_exactly_after_the_rules_changed() {
    let (serving, mut client, folder) = served(RULES, &[]);
    let actions = ["search", "login", "export", "chat", "room", "closed"];
    let mut refusals = Vec::new();
    let mut number = 0_usize;
    while refusals.len() < REFUSALS {
        let (action, plan) = (actions[number % actions.len()], ["free", "pro"][number / 7 % 2]);
        let user = if number % 50 == 49 { "mallory".to_owned() } else { format!("u-{}", number % 97) };
        let answer = client.post("/v1/check", &body(action, &user, plan));
        let decision = answer.json();
        number += 1;
        assert_eq!(decision["allowed"] == false, decision.get("ref").is_some(), "{decision}");
        if decision["allowed"] == false {
            assert_eq!(answer.header("tollgate-ref"), decision["ref"].as_str());
            refusals.push(decision);
        }
    }
    let kinds: std::collections::BTreeSet<&str> =
        refusals.iter().filter_map(|refusal| refusal["rule"].as_str()).collect();
    assert_eq!(kinds.len(), 6, "every rule that can refuse did: {kinds:?}");

    let before = explain(&mut client, &refusals[0]["ref"]);
    assert_eq!(before["rules_are_in_force"], true);
    std::fs::write(folder.path().join("rules.yaml"), CHANGED).expect("a file");
    serving.signal("HUP");
    serving.wait_for("rules_replaced");
    for refusal in &refusals {
        let explained = explain(&mut client, &refusal["ref"]);
        let count = explained["refused_by"].as_array().expect("rules").len();
        let found = json!({ "headline": of_rule(&explained), "refused": count, "source": explained["source"],
            "exactness": explained["exactness"] });
        let mut expected = received(refusal);
        if refusal["source"] == "rule" {
            // The rule refused before any rule counted.
            expected["refused"] = 1.into();
        }
        assert_eq!(found, expected, "{explained}");
        assert_eq!(explained["cost"].as_u64(), refusal["cost"].as_u64(), "{explained}");
        assert_eq!(explained["rules_fingerprint"], before["rules_fingerprint"]);
        assert_eq!(explained["rules_are_in_force"], false);
    }
    // The live numbers are those of the new rules.
    let live = client.post("/v1/explain", &body("search", "u-0", "free")).json();
    assert_eq!(live["rules"].as_array().map(Vec::len), Some(2), "{live}");
}

#[test]
fn every_refusal_over_http_carries_a_reference_and_no_admission_does() {
    let (_serving, mut client, _folder) = served(RULES, &[]);
    for (path, sent) in [
        ("/v1/check", body("login", "a", "free")),
        ("/v1/leases", body("room", "a", "free")),
        (
            "/v1/reservations",
            json!({ "attributes": { "action": "chat", "user": "a" }, "cost": 3 }).to_string(),
        ),
    ] {
        let allowed = client.post(path, &sent);
        assert_eq!((allowed.status, allowed.header("tollgate-ref")), (200, None), "{path}");
        let refused = client.post(path, &sent);
        assert!(refused.status >= 400, "{path}: {refused:?}");
        let rule = explain(&mut client, &refused.json()["ref"])["rule"].clone();
        assert_eq!(rule, refused.json()["rule"], "{path}");
    }
    let batch = json!([{ "attributes": { "action": "login", "user": "b" } }, { "attributes": { "action": "login", "user": "b" } }]);
    let answers = client.post("/v1/check/batch", &batch.to_string()).json();
    assert!(answers[0].get("ref").is_none() && answers[1]["ref"].is_string(), "{answers}");
    // A proxy passes the header on, and the body where it can.
    let refused = client.get("/v1/authorize?attribute=action:closed&attribute=user:a");
    assert_eq!(refused.status, 403, "{refused:?}");
    assert_eq!(refused.json()["ref"].as_str(), refused.header("tollgate-ref"));
    assert!(refused.header("tollgate-ref").is_some());
    // An extension that is refused.
    let reserve = json!({ "attributes": { "action": "chat", "user": "c" }, "cost": 2 }).to_string();
    let receipt = client.post("/v1/reservations", &reserve).json()["receipt"].clone();
    let extended =
        client.post("/v1/reservations/extend", &json!({ "receipt": receipt, "more": 2 }).to_string());
    assert_eq!(extended.status, 429, "{extended:?}");
    assert_eq!(extended.header("tollgate-ref"), extended.json()["ref"].as_str());
    assert_eq!(explain(&mut client, &extended.json()["ref"])["rule"], "month");
}

#[test]
fn an_invalid_reference_is_declined_and_says_why() {
    let (_serving, mut client, _folder) = served(RULES, &[]);
    check(&mut client, "login", "a");
    let reference = check(&mut client, "login", "a")["ref"].as_str().expect("a reference").to_owned();
    let changed = format!("{}{}", &reference[..reference.len() - 2], "AA");
    for wrong in ["", "tgr_", "nonsense", &changed, &"tgr_".repeat(1_000)] {
        let answer = client.post("/v1/explain", &json!({ "ref": wrong }).to_string());
        problem(&answer, 422, "invalid-ref");
    }
    let both = json!({ "ref": reference, "attributes": {} }).to_string();
    problem(&client.post("/v1/explain", &both), 400, "bad-request");
    problem(&client.post("/v1/explain", "{}"), 400, "bad-request");
}

#[test]
fn an_explanation_has_the_override_the_retry_and_the_last_refusals() {
    let (_serving, mut client, _folder) = served(RULES, &[]);
    let pro = body("login", "jane", "pro");
    for _ in 0..5 {
        client.post("/v1/check", &pro);
    }
    let explained = client.post("/v1/explain", &pro).json();
    let rule = explained["rules"].as_array().expect("rules").iter().find(|rule| rule["rule"] == "log");
    let rule = rule.expect("the rule");
    assert_eq!((&rule["override"]["reason"], &rule["override"]["limit"]), (&json!("paid"), &json!(2)));
    let account = &rule["accounts"][0];
    assert_eq!(account["allowed"], false);
    let wait = account["retry_after_ms"].as_u64().expect("a wait");
    assert!((590_000..=600_000).contains(&wait), "{wait}");
    assert!(account["retry_at_ms"].as_u64() > Some(1_700_000_000_000));
    let [refusal] = &explained["recent_refusals"].as_array().expect("refusals")[..] else {
        panic!("{explained}")
    };
    assert_eq!(
        (&refusal["rule"], &refusal["count"], &refusal["limit"]),
        (&json!("log"), &json!(3), &json!(2))
    );
    assert_eq!(explained["hash_key"]["fleet"], Value::Null, "the store is not shared");
    // Explaining charges nothing, and another subject has no refusals.
    let again = client.post("/v1/explain", &pro).json();
    assert_eq!(again["recent_refusals"][0]["count"], 3);
    let other = client.post("/v1/explain", &body("login", "joe", "pro")).json();
    assert_eq!(other["recent_refusals"], json!([]));
}

#[test]
fn top_counts_refusals_by_subject_and_shows_who_is_near_a_limit() {
    let (_serving, mut client, _folder) = served(RULES, &[]);
    for (user, times) in [("a", 5), ("b", 2), ("c", 9)] {
        for _ in 0..times {
            check(&mut client, "login", user);
        }
    }
    check(&mut client, "search", "d");
    check(&mut client, "search", "d");
    let top = client.get("/v1/top").json();
    let counts: Vec<_> = top["subjects"].as_array().expect("subjects").iter().collect();
    let login: Vec<u64> =
        counts.iter().filter(|one| one["rule"] == "log").filter_map(|one| one["count"].as_u64()).collect();
    assert_eq!(login, [8, 4, 1], "each has one admission: {top}");
    assert!(counts.iter().any(|one| one["rule"] == "day" && one["count"] == 1), "{top}");
    let hash = client.post("/v1/explain", &body("login", "c", "free")).json();
    let hash = hash["rules"]
        .as_array()
        .expect("rules")
        .iter()
        .find(|rule| rule["rule"] == "log")
        .expect("a rule")["subject"]
        .clone();
    assert_eq!(counts[0]["subject"], hash, "the notation of hashes is the same everywhere");

    let shadow = client.get("/v1/top?by=shadow-refused").json();
    assert_eq!(shadow["subjects"].as_array().map(Vec::len), Some(1), "{shadow}");
    assert_eq!(
        (&shadow["subjects"][0]["rule"], &shadow["subjects"][0]["count"]),
        (&json!("trial"), &json!(1))
    );

    let used = client.get("/v1/top?by=used&rule=day&limit=5").json();
    let [near] = &used["subjects"].as_array().expect("subjects")[..] else { panic!("{used}") };
    assert_eq!((&near["used_permille"], &near["remaining"]), (&json!(1_000), &json!(0)));

    problem(&client.get("/v1/top?rule=unknown"), 422, "unknown-rule");
    for query in ["by=all", "limit=0", "limit=1001", "limit=x", "subject=a"] {
        problem(&client.get(&format!("/v1/top?{query}")), 400, "bad-query");
    }
}

#[test]
fn shadow_refusals_are_logged_with_the_hash_of_the_subject_only() {
    let (serving, mut client, _folder) = served(RULES, &[]);
    check(&mut client, "search", "jane-doe");
    check(&mut client, "search", "jane-doe");
    let logged = serving.wait_for("shadow_refused");
    assert_eq!((&logged["rule"], &logged["subject_kind"]), (&json!("trial"), &json!("user")));
    assert!(!logged.to_string().contains("jane-doe"), "{logged}");
    let began = Instant::now();
    let metric = loop {
        let metrics = client.get("/metrics").body;
        let line =
            metrics.lines().find(|line| line.starts_with("rate_limit_shadow_rejected_total{rule=\"trial\"}"));
        let count = line.and_then(|line| line.split(' ').next_back()).map(str::to_owned);
        if count.as_deref() == Some("1") || began.elapsed() > TIMEOUT {
            break count;
        }
    };
    assert_eq!(metric.as_deref(), Some("1"));
}
