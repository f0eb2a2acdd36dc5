//! Tokens that are bound to attribute values or rules: the same on every transport.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;
use tollgate_testkit::serving::Serving;

use super::{Sent, command, connect, grpc, one, resp, sent, start};

const RULES: &str = "version: 1
rules:
  - { id: per-tenant, per: tenant, limit: { sliding-log: 3/h } }
  - { id: in-flight, match: { action: export }, per: tenant, limit: { concurrency: 1, lease: 1h } }
  - { id: log-in, match: { action: log-in }, per: tenant, limit: { penalty: 30s } }
";
const HOLD_RULES: &str = "version: 1
rules:
  - { id: tokens, match: { action: chat }, per: tenant, limit: { quota: 100/year } }
  - { id: seats, match: { action: seat }, per: tenant, limit: { meter: 10 } }
";
const RULES_OF_TEAMS: &str = "version: 1
rules:
  - { id: streams, match: { action: stream }, per: tenant, limit: { fixed-window: 9/d }, postpaid: true }
  - { id: chat, match: { action: [chat, stream, both] }, per: tenant, limit: { quota: 100/year } }
  - { id: seats, match: { action: seat }, per: tenant, limit: { meter: 10 } }
  - { id: exports, match: { action: [export, both] }, per: tenant, limit: { quota: 100/year } }
  - { id: tried, match: { action: trial }, per: tenant, limit: { fixed-window: 9/d }, mode: shadow }
";
const OTHER_RULE: &str = "the token is not bound to rule \"exports\", which counts this request; send other attributes, or use a \
                          token that is bound to this rule too";
const REFUSED: &str = "the token is bound to another value of attribute \"tenant\"; send that value, or leave the attribute out";

/// A server, and the tokens of two tenants, of a gateway for all of them, and of a caller for two rules.
struct Tenants {
    server: Serving,
    acme: String,
    globex: String,
    gateway: String,
    /// A token that is bound to the rules `chat` and `seats`.
    one_team: String,
    _folder: TempDir,
}

fn token(args: &[&str]) -> (String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_tollgate")).arg("token").args(args).output();
    let output = output.expect("the binary runs");
    let line = String::from_utf8_lossy(&output.stderr)
        .lines()
        .find(|line| line.contains("sha256:"))
        .map(str::to_owned);
    let token = String::from_utf8(output.stdout).expect("text").trim().to_owned();
    (token, line.unwrap_or_else(|| panic!("no line for {args:?}")))
}

impl Tenants {
    fn start() -> Tenants {
        Tenants::with_rules(RULES)
    }

    fn with_rules(rules: &str) -> Tenants {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| -> PathBuf {
            let path = folder.path().join(name);
            std::fs::write(&path, text).expect("a file can be written");
            path
        };
        let scopes = "check,refund,report,record";
        let (acme, acme_line) = token(&["--name", "acme", "--scopes", scopes, "--attribute", "tenant=acme"]);
        let (globex, globex_line) =
            token(&["--name", "globex", "--scopes", scopes, "--attribute", "tenant=globex"]);
        let (gateway, gateway_line) = token(&["--name", "gateway", "--scopes", scopes]);
        let rules_of_one = ["--rule", "chat", "--rule", "seats"];
        let (one_team, one_team_line) =
            token(&[&["--name", "one-team", "--scopes", scopes][..], &rules_of_one].concat());
        let lines = [acme_line, globex_line, gateway_line, one_team_line].join("\n");
        let config = write("tollgate.yaml", &format!("tokens:\n{lines}\n"));
        let rules = write("rules.yaml", rules);
        let path = |path: &PathBuf| path.to_str().expect("text").to_owned();
        let server = start(&["--config", &path(&config), "--rules", &path(&rules)]);
        Tenants { server, acme, globex, gateway, one_team, _folder: folder }
    }

    /// Sends a body over HTTP; returns the status and the body of the response.
    fn post(&self, token: &str, path: &str, body: &Value) -> (u16, Value) {
        let body = body.to_string();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
             authorization: Bearer {token}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut stream = connect(self.server.http);
        stream.write_all(head.as_bytes()).expect("the server reads");
        let mut response = String::new();
        stream.read_to_string(&mut response).expect("a response");
        let (head, body) = response.split_once("\r\n\r\n").expect("a head and a body");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        (status, serde_json::from_str(body).unwrap_or(Value::Null))
    }

    fn check(&self, token: &str, attributes: Value) -> (u16, Value) {
        self.post(token, "/v1/check", &json!({ "attributes": attributes }))
    }

    fn remaining(&self, token: &str) -> Value {
        let (_, body) = self.post(token, "/v1/peek", &json!({ "attributes": {}, "cost": 0 }));
        body["remaining"].clone()
    }

    fn over_grpc(&self, token: &str, sent: &Sent) -> Result<(), String> {
        grpc(&self.server, sent, Some(&format!("Bearer {token}"))).expect("never an error of the call")
    }

    fn over_resp(&self, token: &str, words: &[&str]) -> String {
        resp(&self.server, &[command(&["AUTH", token]), command(words)]).remove(1)
    }
}

#[test]
fn a_bound_token_charges_its_own_values_on_every_transport() {
    let tenants = Tenants::start();
    // An absent attribute is filled in.
    assert_eq!(tenants.check(&tenants.acme, json!({})).0, 200);
    assert_eq!(tenants.over_resp(&tenants.acme, &["TG.CHECK", "user", "u"]), "*20");
    assert_eq!(tenants.over_grpc(&tenants.acme, &one("user", "u")), Ok(()));
    assert_eq!(tenants.remaining(&tenants.acme), json!(0));
    assert_eq!(tenants.check(&tenants.acme, json!({ "tenant": "acme" })).0, 429);
    assert_eq!(tenants.remaining(&tenants.globex), json!(3), "the other tenant was not charged");

    // Another value is refused, and a gateway never takes it for an error.
    let (status, problem) = tenants.check(&tenants.acme, json!({ "tenant": "globex" }));
    assert_eq!(
        (status, &problem["code"], &problem["detail"]),
        (403, &json!("attribute-bound"), &json!(REFUSED))
    );
    let line = tenants.over_resp(&tenants.acme, &["TG.CHECK", "tenant", "globex"]);
    assert_eq!(line, format!("-NOPERM {REFUSED}"));
    let line = tenants.over_resp(&tenants.acme, &["TG.PEEK", "tenant", "globex"]);
    assert_eq!(line, format!("-NOPERM {REFUSED}"));
    assert_eq!(tenants.over_grpc(&tenants.acme, &one("tenant", "globex")), Err(REFUSED.to_owned()));
    let other = json!({ "attributes": { "tenant": "globex", "action": "log-in" }, "result": "failure" });
    assert_eq!(tenants.post(&tenants.acme, "/v1/report", &other).0, 403);
    let other = json!({ "attributes": { "tenant": "globex", "action": "export" } });
    for path in ["/v1/peek", "/v1/leases"] {
        assert_eq!(tenants.post(&tenants.acme, path, &other).0, 403, "{path}");
    }
    let batch = json!([{ "attributes": {} }, { "attributes": { "tenant": "globex" } }]);
    assert_eq!(tenants.post(&tenants.acme, "/v1/check/batch", &batch).0, 403);
    let authorize = tenants.post(&tenants.acme, "/v1/authorize?attribute=tenant:globex", &json!({}));
    assert_eq!(authorize.0, 403);
    assert_eq!(tenants.remaining(&tenants.globex), json!(3), "no attempt charged the other tenant");
    // A token without bound attributes sends any value.
    assert_eq!(tenants.check(&tenants.gateway, json!({ "tenant": "globex" })).0, 200);
    assert_eq!(tenants.remaining(&tenants.globex), json!(2));
}

#[test]
fn a_bound_token_returns_only_receipts_of_its_own_values() {
    let tenants = Tenants::start();
    let receipt_of = |token: &str, attributes: Value| {
        let (status, body) = tenants.check(token, attributes);
        assert_eq!(status, 200, "{body}");
        json!({ "receipt": body["receipt"] })
    };
    let receipt = receipt_of(&tenants.globex, json!({}));
    let unbound = receipt_of(&tenants.gateway, json!({ "tenant": "globex" }));
    for stolen in [&receipt, &unbound] {
        for path in ["/v1/refund", "/v1/leases/release", "/v1/leases/renew"] {
            let (status, problem) = tenants.post(&tenants.acme, path, stolen);
            assert_eq!((status, &problem["code"]), (422, &json!("receipt-unknown")), "{path}");
        }
    }
    assert_eq!(tenants.remaining(&tenants.globex), json!(1), "nothing was given back");
    let (status, body) = tenants.post(&tenants.globex, "/v1/refund", &receipt);
    assert_eq!((status, &body["rules"][0]["amount"]), (200, &json!(1)));
    let (status, body) = tenants.post(&tenants.gateway, "/v1/refund", &unbound);
    assert_eq!((status, &body["rules"][0]["amount"]), (200, &json!(1)));
    assert_eq!(tenants.remaining(&tenants.globex), json!(3));
}

#[test]
fn keys_and_request_ids_of_bound_tokens_are_separate() {
    let tenants = Tenants::start();
    let throttle = ["CL.THROTTLE", "k", "0", "1", "3600"];
    let limited = |token: &str| {
        let mut stream = connect(tenants.server.resp);
        stream.write_all(&command(&["AUTH", token])).expect("the server reads");
        stream.write_all(&command(&throttle)).expect("the server reads");
        stream.write_all(&command(&["QUIT"])).expect("the server reads");
        let mut replies = String::new();
        stream.read_to_string(&mut replies).expect("replies");
        replies.contains("*5\r\n:1\r\n")
    };
    assert!(!limited(&tenants.acme));
    assert!(!limited(&tenants.globex), "the same key of another tenant is another key");
    assert!(!limited(&tenants.gateway));
    assert!(limited(&tenants.acme));
    let with_id = json!({ "attributes": {}, "id": "r-1" });
    for token in [&tenants.acme, &tenants.globex] {
        assert_eq!(
            tenants.post(token, "/v1/check", &with_id).0,
            200,
            "an id of another tenant is no conflict"
        );
    }
}

#[test]
fn charges_after_the_fact_and_holds_keep_to_the_bound_values() {
    let tenants = Tenants::with_rules(HOLD_RULES);
    let (acme, globex) = (tenants.acme.as_str(), tenants.globex.as_str());
    let other = |action: &str| json!({ "attributes": { "tenant": "globex", "action": action } });
    for path in ["/v1/record", "/v1/credit", "/v1/usage", "/v1/reservations"] {
        let (status, problem) = tenants.post(acme, path, &other("chat"));
        assert_eq!((status, &problem["code"]), (403, &json!("attribute-bound")), "{path}");
    }
    for (path, amount) in
        [("/v1/meters", None), ("/v1/meters/add", Some(1)), ("/v1/meters/subtract", Some(1))]
    {
        let mut body = other("seat");
        if let Some(amount) = amount {
            body["amount"] = json!(amount);
        }
        assert_eq!(tenants.post(acme, path, &body).0, 403, "{path}");
    }
    for name in
        ["TG.RECORD", "TG.CREDIT", "TG.USAGE", "TG.RESERVE", "TG.LEASE", "TG.METER.GET", "TG.METER.ADD"]
    {
        let line = tenants.over_resp(acme, &[name, "tenant", "globex", "action", "chat"]);
        assert_eq!(line, format!("-NOPERM {REFUSED}"), "{name}");
    }

    // Receipts of another tenant, or of a caller for all tenants, are unknown on every path and in every command.
    let (status, held) =
        tenants.post(globex, "/v1/reservations", &json!({ "attributes": { "action": "chat" }, "cost": 40 }));
    assert_eq!(status, 200, "{held}");
    let (_, unbound) = tenants.post(&tenants.gateway, "/v1/reservations", &other("chat"));
    for stolen in [&held["receipt"], &unbound["receipt"]] {
        let stolen = stolen.as_str().expect("a receipt");
        for (path, body) in [
            ("/v1/reservations/extend", json!({ "receipt": stolen, "more": 1 })),
            ("/v1/reservations/settle", json!({ "receipt": stolen, "actual": 1 })),
            ("/v1/reservations/cancel", json!({ "receipt": stolen })),
        ] {
            let (status, problem) = tenants.post(acme, path, &body);
            assert_eq!((status, &problem["code"]), (422, &json!("receipt-unknown")), "{path}");
        }
        for words in [
            &["TG.EXTEND", stolen, "1"][..],
            &["TG.SETTLE", stolen, "1"],
            &["TG.CANCEL", stolen],
            &["TG.REFUND", stolen],
            &["TG.RENEW", stolen],
            &["TG.RELEASE", stolen],
        ] {
            let line = tenants.over_resp(acme, words);
            assert!(line.starts_with("-NORECEIPT "), "{words:?}: {line}");
        }
    }
    let usage = |token: &str| {
        let (status, usage) =
            tenants.post(token, "/v1/usage", &json!({ "attributes": { "action": "chat" } }));
        assert_eq!(status, 200, "{usage}");
        let rule =
            usage["rules"].as_array().and_then(|rules| rules.iter().find(|rule| rule["rule"] == "tokens"));
        rule.and_then(|rule| rule["remaining"].as_u64()).expect("a number")
    };
    assert_eq!((usage(globex), usage(acme)), (59, 100), "nothing was given back or charged");

    // The bound value is filled in, and ids of tenants are separate.
    let record = json!({ "attributes": { "action": "chat" }, "cost": 9, "id": "r-1" });
    for token in [acme, globex] {
        let (status, recorded) = tenants.post(token, "/v1/record", &record);
        assert_eq!((status, &recorded["replayed"]), (200, &json!(false)), "{recorded}");
    }
    assert_eq!((usage(globex), usage(acme)), (50, 91));
    let extend = |receipt: &Value| json!({ "receipt": receipt, "more": 1, "id": "e-1" });
    let (_, of_acme) = tenants.post(acme, "/v1/reservations", &json!({ "attributes": { "action": "chat" } }));
    for (token, receipt) in [(acme, &of_acme["receipt"]), (globex, &held["receipt"])] {
        assert_eq!(tenants.post(token, "/v1/reservations/extend", &extend(receipt)).0, 200);
    }
}

#[test]
fn a_token_bound_to_rules_uses_no_other_rule_on_any_transport() {
    let tenants = Tenants::with_rules(RULES_OF_TEAMS);
    let team = tenants.one_team.as_str();
    let of = |action: &str| json!({ "attributes": { "tenant": "acme", "action": action } });
    let usage = |action: &str| {
        let (status, usage) = tenants.post(&tenants.gateway, "/v1/usage", &of(action));
        assert_eq!(status, 200, "{usage}");
        let rules = usage["rules"].as_array().expect("a list");
        rules.iter().map(|rule| rule["used"].as_u64().expect("a number")).collect::<Vec<u64>>()
    };

    // Its own rules count.
    assert_eq!(tenants.check(team, of("chat")["attributes"].clone()).0, 200);
    let over_grpc = |action: &str| {
        let attributes = [("tenant", "acme"), ("action", action)];
        let owned = attributes.map(|(name, value)| (name.to_owned(), value.to_owned()));
        tenants.over_grpc(team, &sent(owned.into()))
    };
    assert_eq!(over_grpc("chat"), Ok(()));
    assert_eq!(tenants.over_resp(team, &["TG.CHECK", "tenant", "acme", "action", "chat"]), "*20");
    let (status, held) = tenants.post(team, "/v1/reservations", &of("chat"));
    assert_eq!((status, usage("chat")), (200, vec![3]), "{held}");
    assert_eq!(
        tenants.post(team, "/v1/reservations/settle", &json!({ "receipt": held["receipt"], "actual": 1 })).0,
        200
    );
    assert_eq!(
        tenants
            .post(team, "/v1/meters/add", &json!({ "attributes": of("seat")["attributes"], "amount": 2 }))
            .0,
        200
    );

    // What another rule counts as well is refused whole, also under a shadow rule, and nothing is charged.
    for action in ["export", "both", "stream", "trial"] {
        let attributes = &of(action)["attributes"];
        for (path, more) in [
            ("/v1/check", json!({})),
            ("/v1/check", json!({ "cost": 5 })),
            ("/v1/peek", json!({})),
            ("/v1/leases", json!({})),
            ("/v1/reservations", json!({})),
            ("/v1/record", json!({ "cost": 5 })),
            ("/v1/credit", json!({ "cost": 1 })),
            ("/v1/usage", json!({})),
            ("/v1/report", json!({ "result": "failure" })),
            ("/v1/meters", json!({})),
            ("/v1/meters/add", json!({ "amount": 1 })),
            ("/v1/meters/subtract", json!({ "amount": 1 })),
        ] {
            let mut body = more;
            body["attributes"] = attributes.clone();
            let (status, problem) = tenants.post(team, path, &body);
            // No rule has a lease.
            let expected = if path == "/v1/leases" { (422, "no-lease") } else { (403, "rule-not-permitted") };
            assert_eq!((status, &problem["code"]), (expected.0, &json!(expected.1)), "{path} {body}");
        }
        let (status, batch) = tenants.post(team, "/v1/check/batch", &json!([of(action)]));
        assert_eq!((status, &batch[0]["code"]), (200, &json!("rule-not-permitted")));
        for name in
            ["TG.CHECK", "TG.PEEK", "TG.RECORD", "TG.CREDIT", "TG.USAGE", "TG.RESERVE", "TG.METER.ADD"]
        {
            let line = tenants.over_resp(team, &[name, "tenant", "acme", "action", action]);
            assert!(line.starts_with("-NOPERM the token is not bound to rule \""), "{name}: {line}");
        }
    }
    assert_eq!(over_grpc("both"), Err(OTHER_RULE.to_owned()));
    let query = "/v1/authorize?attribute=tenant:acme&attribute=action:both";
    let (status, problem) = tenants.post(team, query, &json!({}));
    assert_eq!((status, &problem["detail"]), (403, &json!(OTHER_RULE)));
    assert_eq!((usage("both"), usage("stream"), usage("trial")), (vec![4, 0], vec![0, 4], vec![0]));

    // Receipts of callers that are bound otherwise, or not at all, are unknown to it.
    let (_, decision) = tenants.post(&tenants.gateway, "/v1/check", &of("chat"));
    let (status, problem) = tenants.post(team, "/v1/refund", &json!({ "receipt": decision["receipt"] }));
    assert_eq!((status, &problem["code"]), (422, &json!("receipt-unknown")));
    assert_eq!(usage("chat"), vec![5]);
}
