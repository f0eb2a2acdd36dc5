//! Live changes and the audit trail of real servers.

mod commands;
mod fleet;
pub(super) mod http;
mod restart;
mod routes;

use std::fs;

use serde_json::{Value, json};
use tollgate_testkit::serving::{Serving, create_token};

use super::{BINARY, Workplace};
use http::{Answer, call};

pub(super) const RULES: &str = "
version: 1
rules:
  - { id: search, match: { action: search }, per: tenant, limit: { fixed-window: 10/h } }
  - { id: calls, match: { action: call }, per: api_key, limit: { fixed-window: 10/h } }
overrides:
  - { when: { plan: pro }, rule: search, limit: { fixed-window: 20/h } }
";

/// A workplace with tokens, and the configuration that accepts them.
pub(super) struct Operators {
    pub(super) place: Workplace,
    pub(super) change: String,
    pub(super) read: String,
}

impl Operators {
    pub(super) fn new() -> Operators {
        let place = Workplace::new(RULES);
        let (change, read) = (create_token(BINARY, "change,read"), create_token(BINARY, "read"));
        let config = format!("anonymous: check\ntokens:\n{}\n{}\n", change.line, read.line);
        fs::write(place.path("tollgate.yaml"), config).expect("a file can be written");
        Operators { place, change: change.token, read: read.token }
    }

    pub(super) fn serve(&self, more: &[&str]) -> Serving {
        let config = self.place.path("tollgate.yaml");
        self.place.serve(&[&["--config", &config], more].concat())
    }

    /// A call with the token that may change.
    pub(super) fn send(&self, server: &Serving, method: &str, path: &str, body: &Value) -> Answer {
        call(server.http, method, path, &[("authorization", &format!("Bearer {}", self.change))], body)
    }

    pub(super) fn change(
        &self,
        server: &Serving,
        method: &str,
        path: &str,
        etag: &str,
        body: &Value,
    ) -> Answer {
        let authorization = format!("Bearer {}", self.change);
        call(server.http, method, path, &[("authorization", &authorization), ("if-match", etag)], body)
    }

    pub(super) fn get(&self, server: &Serving, path: &str) -> Value {
        let answer = self.send(server, "GET", path, &Value::Null);
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json
    }
}

/// How many of the next checks with these attributes are allowed, at most `tries`.
pub(super) fn limit_of(server: &Serving, attributes: &Value) -> u64 {
    let answer = call(server.http, "POST", "/v1/peek", &[], &json!({ "attributes": attributes }));
    answer.json["limit"].as_u64().unwrap_or_else(|| panic!("{answer:?}"))
}

pub(super) fn status_of(server: &Serving, attributes: &Value) -> u16 {
    call(server.http, "POST", "/v1/peek", &[], &json!({ "attributes": attributes })).status
}

#[test]
fn an_override_is_in_force_when_the_call_returns_and_ends_when_it_says() {
    let operators = Operators::new();
    let server = operators.serve(&[]);
    let acme = json!({ "action": "search", "tenant": "acme" });
    let pro = json!({ "action": "search", "tenant": "acme", "plan": "pro" });
    assert_eq!((limit_of(&server, &acme), limit_of(&server, &pro)), (10, 20));
    let body = json!({ "rule": "search", "when": { "tenant": "acme" }, "scale": 2, "for": "2h", "reason": "launch" });
    // A trial changes nothing.
    let trial = operators.send(&server, "POST", "/v1/overrides?dry_run=true", &body);
    assert_eq!(
        (trial.status, &trial.json["effect"], &trial.json["dry_run"]),
        (200, &json!("raises"), &json!(true))
    );
    assert_eq!(limit_of(&server, &acme), 10);
    let added = operators.send(&server, "POST", "/v1/overrides", &body);
    assert_eq!((added.status, added.header("etag")), (201, Some("\"1\"")), "{added:?}");
    let path = added.header("location").expect("a location").to_owned();
    // A scale multiplies what would otherwise apply, overrides of the file included.
    assert_eq!((limit_of(&server, &acme), limit_of(&server, &pro)), (20, 40));
    assert_eq!(limit_of(&server, &json!({ "action": "search", "tenant": "other" })), 10);
    assert_eq!(operators.get(&server, &path)["in_force"], json!(true));

    // A limit replaces what would otherwise apply, and needs a word if it gives less.
    let lower = json!({ "rule": "search", "when": { "plan": "pro" }, "limit": { "fixed-window": "15/h" }, "for": "1h", "reason": "abuse" });
    let refused = operators.send(&server, "POST", "/v1/overrides", &lower);
    assert_eq!((refused.status, &refused.json["code"]), (409, &json!("lowers")), "{refused:?}");
    let mut allowed = lower.clone();
    allowed["allow_lower"] = json!(true);
    let allowed = operators.send(&server, "POST", "/v1/overrides", &allowed);
    assert_eq!((allowed.status, &allowed.json["effect"]), (201, &json!("mixed")), "{allowed:?}");
    assert_eq!(limit_of(&server, &pro), 15, "the newest of equals wins");

    // Its end is changed, under the version that the caller has seen.
    let longer = json!({ "for": "1s", "reason": "over soon" });
    let blind = operators.send(&server, "PATCH", &path, &longer);
    assert_eq!((blind.status, &blind.json["code"]), (428, &json!("if-match-required")));
    let stale = operators.change(&server, "PATCH", &path, "\"7\"", &longer);
    assert_eq!((stale.status, &stale.json["code"]), (412, &json!("stale")));
    let changed = operators.change(&server, "PATCH", &path, "\"1\"", &longer);
    assert_eq!((changed.status, changed.header("etag")), (200, Some("\"2\"")), "{changed:?}");
    let ended = http::eventually(|| limit_of(&server, &acme) == 10);
    assert!(ended, "an override ends by itself");
    assert_eq!(operators.get(&server, &path)["in_force"], json!(false));
    let removed = operators.change(&server, "DELETE", &path, "\"2\"", &json!({ "reason": "tidy" }));
    assert_eq!(removed.status, 200, "{removed:?}");
    let gone = operators.send(&server, "GET", &path, &Value::Null);
    assert_eq!((gone.status, &gone.json["code"]), (404, &json!("no-such-change")));
}

/// Two writers that have seen the same version: one of them wins, and the other one gets 412.
#[test]
fn of_two_writers_that_race_one_gets_412() {
    let operators = Operators::new();
    let server = operators.serve(&[]);
    let body = json!({ "id": "o-1", "rule": "search", "when": { "tenant": "acme" }, "scale": 2, "for": "2h", "reason": "x" });
    assert_eq!(operators.send(&server, "POST", "/v1/overrides", &body).status, 201);
    for version in 1..=20 {
        let etag = format!("\"{version}\"");
        let authorization = format!("Bearer {}", operators.change);
        let fields = [("authorization", authorization.as_str()), ("if-match", etag.as_str())];
        let address = server.http;
        let write = |scale: u64| {
            let body = json!({ "scale": scale, "reason": "race" });
            call(address, "PATCH", "/v1/overrides/o-1", &fields, &body)
        };
        let (one, other) = std::thread::scope(|scope| {
            let one = scope.spawn(|| write(10 + version));
            let other = write(100 + version);
            (one.join().expect("it ends"), other)
        });
        let mut statuses = [one.status, other.status];
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 412], "{one:?} {other:?}");
        let winner = if one.status == 200 { one } else { other };
        let found = operators.get(&server, "/v1/overrides/o-1");
        assert_eq!((&found["scale"], &found["version"]), (&winner.json["scale"], &json!(version + 1)));
    }
    let rows = operators.get(&server, "/v1/audit?limit=1000")["rows"].clone();
    let changed = rows.as_array().expect("rows").iter().filter(|row| row["action"] == "override.change");
    assert_eq!(changed.count(), 20, "each change has one row, and a refused one has none");
}

#[test]
fn deny_and_bypass_entries_come_before_every_rule() {
    let operators = Operators::new();
    let server = operators.serve(&[]);
    let acme = json!({ "action": "search", "tenant": "acme" });
    let bypass = json!({ "when": { "tenant": "acme" }, "for": "1h", "reason": "load test" });
    let added = operators.send(&server, "POST", "/v1/bypass", &bypass);
    assert_eq!(added.status, 201, "{added:?}");
    let answer = call(server.http, "POST", "/v1/peek", &[], &json!({ "attributes": acme }));
    assert_eq!((answer.status, &answer.json["source"]), (200, &json!("list")));
    // A deny entry names the subject by its hash, as logs show it, and comes before the bypass.
    let explained = call(
        server.http,
        "POST",
        "/v1/explain",
        &[("authorization", &format!("Bearer {}", operators.read))],
        &json!({ "attributes": acme }),
    );
    let subject = explained.json["rules"][0]["subject"].as_str().expect("a hash").to_owned();
    let deny = json!({ "rule": "search", "subject": subject, "reason": "abuse" });
    let denied = operators.send(&server, "POST", "/v1/deny", &deny);
    assert_eq!((denied.status, &denied.json["until"]), (201, &Value::Null), "{denied:?}");
    assert_eq!(status_of(&server, &acme), 403);
    assert_eq!(status_of(&server, &json!({ "action": "search", "tenant": "other" })), 200);
    // The rule counts other requests of the tenant by another subject.
    let path = denied.header("location").expect("a location");
    let removed = operators.change(&server, "DELETE", path, "\"1\"", &json!({ "reason": "sorry" }));
    assert_eq!(removed.status, 200, "{removed:?}");
    assert_eq!(status_of(&server, &acme), 200);
}

#[test]
fn a_secret_is_kept_as_a_hash_everywhere() {
    let operators = Operators::new();
    let server = operators.serve(&[]);
    let secret = "sk-live-4711-very-secret";
    let body = json!({ "rule": "calls", "when": { "api_key": secret }, "scale": "3", "permanent": true, "reason": "vip" });
    let added = operators.send(&server, "POST", "/v1/overrides", &body);
    assert_eq!(added.status, 201, "{added:?}");
    assert!(added.json["when"]["api_key"]["hashed"][0].is_string(), "{added:?}");
    assert_eq!(limit_of(&server, &json!({ "action": "call", "api_key": secret })), 30);
    assert_eq!(limit_of(&server, &json!({ "action": "call", "api_key": "sk-other" })), 10);
    let audit = operators.get(&server, "/v1/audit").to_string();
    let list = operators.get(&server, "/v1/overrides").to_string();
    let copy = fs::read_to_string(operators.place.path("usage.db.journal.changes")).expect("the copy");
    let log = server.text();
    for (what, text) in [("audit", audit), ("list", list), ("copy", copy), ("log", log)] {
        assert!(!text.contains(secret) && !text.contains("4711"), "{what}: {text}");
        assert!(what == "log" || text.contains("hashed"), "{what}: {text}");
    }
    let database = fs::read(operators.place.path("usage.db")).expect("the database");
    assert!(!database.windows(4).any(|bytes| bytes == b"4711"), "the database has the secret");
}

#[test]
fn calls_that_are_not_meant_are_refused_with_the_fix() {
    let operators = Operators::new();
    let server = operators.serve(&[]);
    let base =
        json!({ "rule": "search", "when": { "tenant": "acme" }, "scale": 2, "for": "2h", "reason": "x" });
    let with = |name: &str, value: Value| {
        let mut body = base.clone();
        match value {
            Value::Null => drop(body.as_object_mut().expect("an object").remove(name)),
            value => body[name] = value,
        }
        body
    };
    for (body, words) in [
        (with("reason", Value::Null), "missing `reason`"),
        (with("reason", json!("  ")), "missing `reason`"),
        (with("for", Value::Null), "missing end"),
        (with("permanent", json!(true)), "write one of"),
        (with("for", json!("31d")), "more than 30 days"),
        (with("for", json!("soon")), "`for`"),
        (with("when", Value::Null), "all: true"),
        (with("when", json!({})), "all: true"),
        (with("when", json!({ "tenant": { "prefx": "a" } })), "prefx"),
        (with("when", json!({ "api_key": { "prefix": "sk" } })), "exact values"),
        (with("rule", json!("serch")), "did you mean `search`?"),
        (with("scale", json!(0)), "invalid scale"),
        (with("scale", Value::Null), "`limit` or a `scale`"),
        (with("limit", json!({ "fixed-window": "5/h" })), "`limit` or a `scale`"),
        (with("subject", json!("AAAAAAAAAA")), "only a deny entry"),
        (with("id", json!("a/b")), "invalid `id`"),
        (with("scal", json!(2)), "unknown field"),
    ] {
        let refused = operators.send(&server, "POST", "/v1/overrides", &body);
        assert_eq!(refused.status, 400, "{body} {refused:?}");
        let detail = refused.json["detail"].as_str().expect("a reason");
        assert!(detail.contains(words), "{body}: {detail}");
    }
    let other = with("scale", Value::Null);
    let mut bucket = other.clone();
    bucket["limit"] = json!({ "token-bucket": "5/h" });
    let refused = operators.send(&server, "POST", "/v1/overrides", &bucket);
    assert!(
        refused.json["detail"].as_str().is_some_and(|text| text.contains("changes the algorithm")),
        "{refused:?}"
    );
    // Values do not belong into URLs.
    let refused = operators.send(&server, "POST", "/v1/overrides?tenant=acme", &base);
    assert_eq!((refused.status, &refused.json["code"]), (400, &json!("bad-query")));
    assert_eq!(operators.get(&server, "/v1/overrides")["changes"], json!([]));
}

#[test]
fn a_reset_is_audited_before_it_is_done() {
    let operators = Operators::new();
    let server = operators.serve(&[]);
    let attributes = json!({ "action": "search", "tenant": "acme" });
    let used = call(server.http, "POST", "/v1/check", &[], &json!({ "attributes": attributes, "cost": 10 }));
    assert_eq!(used.status, 200, "{used:?}");
    assert_eq!(status_of(&server, &attributes), 429);
    let body = json!({ "attributes": attributes, "rule": "search" });
    let refused = operators.send(&server, "POST", "/v1/reset", &body);
    assert_eq!((refused.status, &refused.json["code"]), (400, &json!("invalid-change")), "{refused:?}");
    let body = json!({ "attributes": attributes, "rule": "search", "reason": "ticket 4711" });
    let trial = operators.send(&server, "POST", "/v1/reset?dry_run=true", &body);
    assert_eq!((trial.status, &trial.json["results"][0]["rule"]), (200, &json!("search")), "{trial:?}");
    assert_eq!(status_of(&server, &attributes), 429);
    assert_eq!(operators.send(&server, "POST", "/v1/reset", &body).status, 200);
    assert_eq!(status_of(&server, &attributes), 200);
    let rows = operators.get(&server, "/v1/audit")["rows"].clone();
    let row =
        rows.as_array().expect("rows").iter().find(|row| row["action"] == "reset").expect("a row").clone();
    assert_eq!(
        (&row["actor"], &row["reason"], &row["target"]),
        (&json!("change-read"), &json!("ticket 4711"), &json!("search"))
    );
    assert_eq!(row["detail"].as_str().map(|text| text.contains("acme")), Some(false), "{row}");
}

#[test]
fn reloads_of_rules_and_tokens_are_audited_with_both_fingerprints() {
    let operators = Operators::new();
    let server = operators.serve(&[]);
    let before = operators.get(&server, "/v1/rules")["fingerprint"].as_str().expect("text").to_owned();
    fs::write(operators.place.path("rules.yaml"), RULES.replace("20/h", "30/h"))
        .expect("a file can be written");
    server.signal("HUP");
    let replaced = || {
        let rows = operators.get(&server, "/v1/audit")["rows"].clone();
        rows.as_array().expect("rows").iter().find(|row| row["action"] == "rules.replaced").cloned()
    };
    assert!(http::eventually(|| replaced().is_some()));
    let after = operators.get(&server, "/v1/rules")["fingerprint"].as_str().expect("text").to_owned();
    let row = replaced().expect("a row");
    assert_eq!(
        (&row["before"], &row["after"]),
        (&json!(format!("rules {before}")), &json!(format!("rules {after}")))
    );
    let tokens = || {
        let rows = operators.get(&server, "/v1/audit")["rows"].clone();
        rows.as_array().expect("rows").iter().any(|row| row["action"] == "tokens.replaced")
    };
    assert!(http::eventually(tokens));
    // Live changes stay over the new rules.
    let body = json!({ "rule": "search", "when": { "tenant": "acme" }, "scale": 2, "for": "2h", "reason": "launch" });
    assert_eq!(operators.send(&server, "POST", "/v1/overrides", &body).status, 201);
    let pro = json!({ "action": "search", "tenant": "acme", "plan": "pro" });
    assert_eq!(limit_of(&server, &pro), 60);
    fs::write(operators.place.path("rules.yaml"), RULES.replace("20/h", "25/h"))
        .expect("a file can be written");
    server.signal("HUP");
    assert!(http::eventually(|| limit_of(&server, &pro) == 50));
    // A change of a rule that is gone is not in force, and says why.
    fs::write(
        operators.place.path("rules.yaml"),
        "version: 1\nrules:\n  - { id: other, per: all, limit: { fixed-window: 1/h } }\n",
    )
    .expect("a file can be written");
    server.signal("HUP");
    let list = || operators.get(&server, "/v1/overrides")["changes"][0].clone();
    assert!(http::eventually(|| list()["in_force"] == json!(false)), "{}", list());
    assert!(list()["why_not"].as_str().is_some_and(|why| why.contains("unknown rule")), "{}", list());
}
