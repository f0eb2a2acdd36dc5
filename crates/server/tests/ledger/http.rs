//! `/v1/ledger/...` of a real server.

use std::fs;

use serde_json::{Value, json};
use tollgate_testkit::serving::{Serving, create_token};

use crate::control::http::{Answer, call, eventually};
use crate::{BINARY, Workplace, stop};

const RULES: &str = "
version: 1
rules:
  - { id: tokens, per: tenant, limit: { quota: 1000/month, zone: UTC }, ledger: { name: tenant } }
  - { id: rate, per: tenant, limit: { fixed-window: 1000/h } }
";

struct Office {
    place: Workplace,
    server: Serving,
    admin: String,
    read: String,
}

impl Office {
    fn new() -> Office {
        let place = Workplace::new(RULES);
        let (admin, read) = (create_token(BINARY, "admin,read"), create_token(BINARY, "read"));
        let config = format!("anonymous: check\ntokens:\n{}\n{}\n", admin.line, read.line);
        fs::write(place.path("tollgate.yaml"), config).expect("a file can be written");
        let server = place.serve(&["--config", &place.path("tollgate.yaml")]);
        Office { place, server, admin: admin.token, read: read.token }
    }

    fn send(&self, token: &str, method: &str, path: &str, body: &Value) -> Answer {
        call(self.server.http, method, path, &[("authorization", &format!("Bearer {token}"))], body)
    }

    fn get(&self, path: &str) -> Value {
        let answer = self.send(&self.read, "GET", path, &Value::Null);
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        answer.json
    }

    fn charge(&self, tenant: &str, cost: u64) {
        let body = json!({ "attributes": { "tenant": tenant }, "cost": cost });
        let answer = self.send(&self.read, "POST", "/v1/check", &body);
        // The token reads only; the anonymous scope permits checks.
        assert_eq!(answer.status, 403, "{answer:?}");
        let answer = call(self.server.http, "POST", "/v1/check", &[], &body);
        assert_eq!(answer.status, 200, "{answer:?}");
    }

    /// Waits until the shipper has posted all.
    fn posted(&self, entries: usize) {
        let all = || self.get("/v1/ledger/entries")["entries"].as_array().map(Vec::len) == Some(entries);
        assert!(eventually(all), "{entries} entries are posted");
    }
}

#[test]
fn usage_entries_and_heads_are_read_page_by_page() {
    let office = Office::new();
    for (tenant, cost) in [("acme", 10), ("acme", 20), ("bolt", 5)] {
        office.charge(tenant, cost);
    }
    office.posted(3);
    let first = office.get("/v1/ledger/usage?rule=tokens&limit=1");
    assert_eq!((first["accounts"].as_array().map(Vec::len), first["next"].as_i64()), (Some(1), Some(1)));
    let second = office.get("/v1/ledger/usage?rule=tokens&limit=1&after=1");
    let mut used: Vec<_> = [&first, &second]
        .map(|page| (page["accounts"][0]["name"].clone(), page["accounts"][0]["used"].clone()))
        .into();
    used.sort_by_key(|(name, _)| name.to_string());
    assert_eq!(used, [(json!("acme"), json!(30)), (json!("bolt"), json!(5))]);
    let (mut after, mut posted) = (String::new(), Vec::new());
    loop {
        let page = office.get(&format!("/v1/ledger/entries?limit=2{after}"));
        posted
            .extend(page["entries"].as_array().expect("entries").iter().map(|entry| entry["posted"].clone()));
        let Some(next) = page["next"].as_str() else { break };
        after = format!("&after={next}");
    }
    assert_eq!(posted, [10, 20, 5].map(Value::from));
    // Clients escape colons.
    for from in ["2999-01-01T00:00:00Z", "2999-01-01T00%3A00%3A00Z"] {
        assert_eq!(office.get(&format!("/v1/ledger/entries?from={from}"))["entries"], json!([]));
    }
    let heads = office.get("/v1/ledger/heads");
    let verified = office.place.json(&["ledger", "verify"]);
    assert_eq!(heads["writers"][0]["head"], verified["writers"][0]["head"]);
    // What the server says can be kept, and compared later.
    let kept = office.place.path("heads.json");
    fs::write(&kept, heads.to_string()).expect("it writes");
    assert_eq!(office.place.json(&["ledger", "verify", "--expect", &kept])["intact"], true);
    for bad in [
        "usage?limit=0",
        "usage?after=x",
        "usage?tenant=acme",
        "entries?after=1:2",
        "heads?x=1",
        "usage?from=1",
    ] {
        let answer = office.send(&office.read, "GET", &format!("/v1/ledger/{bad}"), &Value::Null);
        assert_eq!((answer.status, answer.json["code"].as_str()), (400, Some("bad-query")), "{bad}");
    }
    stop(office.server);
}

#[test]
fn corrections_need_the_scope_admin_and_change_the_allowance_once() {
    let office = Office::new();
    office.charge("acme", 10);
    office.posted(1);
    let path = "/v1/ledger/corrections";
    let correction = |units: i64, kind: &str| {
        json!({
            "rule": "tokens", "attributes": { "tenant": "acme" }, "units": units, "kind": kind, "reason": "ticket 4711",
        })
    };
    assert_eq!(office.send(&office.read, "POST", path, &correction(5, "grant")).status, 403);
    let tried = office.send(&office.admin, "POST", &format!("{path}?dry_run=true"), &correction(5, "grant"));
    assert_eq!(
        (tried.status, &tried.json["number"], &tried.json["granted"]),
        (200, &Value::Null, &json!(1000))
    );
    let granted = office.send(&office.admin, "POST", path, &correction(5, "grant"));
    assert_eq!(
        (granted.status, &granted.json["granted"], &granted.json["used"]),
        (201, &json!(1005), &json!(10))
    );
    let corrected = office.send(&office.admin, "POST", path, &correction(-100, "correct"));
    assert_eq!((corrected.status, &corrected.json["available"]), (201, &json!(895)));
    let refused = [
        (correction(-5, "grant"), 400),
        (correction(0, "correct"), 400),
        (correction(i64::MAX, "correct"), 400),
        (json!({ "rule": "tokens", "attributes": {}, "units": 1, "reason": "x" }), 422),
        (json!({ "rule": "rate", "attributes": { "tenant": "acme" }, "units": 1, "reason": "x" }), 422),
        (json!({ "rule": "tokens", "attributes": { "tenant": "acme" }, "units": 1, "reason": " " }), 400),
    ];
    for (body, status) in refused {
        let answer = office.send(&office.admin, "POST", path, &body);
        assert_eq!(answer.status, status, "{body} {answer:?}");
    }
    let audit = office.get("/v1/audit");
    let rows = audit["rows"].as_array().expect("rows");
    let actions: Vec<_> = rows.iter().filter_map(|row| row["action"].as_str()).collect();
    assert_eq!(
        actions.iter().filter(|action| ["grant", "correct"].contains(action)).count(),
        2,
        "{actions:?}"
    );
    let entries = office.get("/v1/ledger/entries");
    let changed: Vec<_> = entries["entries"]
        .as_array()
        .expect("entries")
        .iter()
        .map(|entry| entry["granted"].clone())
        .collect();
    assert_eq!(changed.iter().filter(|granted| **granted != json!(0)).count(), 2, "{entries}");
    assert_eq!(office.place.json(&["ledger", "verify"])["intact"], true);
    stop(office.server);
}

#[test]
fn without_a_database_the_ledger_is_a_conflict() {
    let place = Workplace::new(&RULES.replace(", ledger: { name: tenant }", ""));
    let (rules, key) = (place.path("rules.yaml"), place.path("key"));
    let server = Serving::start(BINARY, &["--rules", &rules, "--hash-key-file", &key]);
    let answer = call(server.http, "GET", "/v1/ledger/usage", &[], &Value::Null);
    assert_eq!((answer.status, answer.json["code"].as_str()), (409, Some("no-database")));
    stop(server);
}
