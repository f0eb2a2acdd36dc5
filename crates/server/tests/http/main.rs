//! `tollgate serve` over HTTP: a real process, real sockets.

mod access;
mod bad_input;
mod client;
mod control;
mod corpus;
mod dashboard;
mod described;
mod holds;
mod meters;
mod misbehaviour;
mod page;
mod shares;
mod why;

use client::{Client, Response, request};
use serde_json::{Value, json};
use tollgate_testkit::serving::Serving;

const RULES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/http/rules.yaml");

fn start(args: &[&str]) -> Serving {
    Serving::start(env!("CARGO_BIN_EXE_tollgate"), args)
}

fn served() -> (Serving, Client) {
    let serving = start(&["--rules", RULES]);
    let client = Client::connect(serving.http);
    (serving, client)
}

fn search(user: &str, cost: u64) -> String {
    json!({ "attributes": { "action": "search", "user": user }, "cost": cost }).to_string()
}

/// Asserts a problem with this status and code. Returns the document.
fn problem(answer: &Response, status: u16, code: &str) -> Value {
    assert_eq!(answer.status, status, "{answer:?}");
    assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{answer:?}");
    let document = answer.json();
    assert_eq!((&document["status"], &document["code"]), (&json!(status), &json!(code)), "{document}");
    document
}

#[test]
fn a_check_returns_the_decision_and_a_refusal_is_a_problem() {
    let (_serving, mut client) = served();
    let allowed = client.post("/v1/check", &search("jane", 3));
    assert_eq!((allowed.status, allowed.header("content-type")), (200, Some("application/json")));
    assert_eq!(allowed.header("ratelimit-policy"), Some(r#""per-user";q=5;w=3600"#));
    assert_eq!(allowed.header("ratelimit"), Some(r#""per-user";r=2;t=3600"#));
    let decision = allowed.json();
    let members: Vec<&str> = decision.as_object().expect("an object").keys().map(String::as_str).collect();
    let all = "algorithm allowed cost degraded delay_ms exactness limit receipt remaining reset_at_ms \
               retry_after_ms rule rules shadow_rejected source";
    assert_eq!(members.join(" "), all);
    assert_eq!((&decision["allowed"], &decision["remaining"]), (&json!(true), &json!(2)));
    assert_eq!(decision["shadow_rejected"], json!(["tried"]));
    assert!(decision["receipt"].is_string());

    let refused = client.post("/v1/check", &search("jane", 3));
    let document = problem(&refused, 429, "quota-exceeded");
    assert_eq!(document["type"], "https://iana.org/assignments/http-problem-types#quota-exceeded");
    assert_eq!(document["violated-policies"], json!(["per-user"]));
    assert_eq!((&document["allowed"], &document["receipt"]), (&json!(false), &Value::Null));
    assert_eq!((&document["rule"], &document["limit"]), (&json!("per-user"), &json!(5)));
    let wait_ms = document["retry_after_ms"].as_u64().expect("a wait");
    let retry_after = refused.header("retry-after").and_then(|wait| wait.parse::<u64>().ok());
    assert_eq!(retry_after, Some(wait_ms.div_ceil(1_000)));
    assert!(refused.header("ratelimit").is_some());

    // A deny list, a rule that denies, and a request that no rule matches.
    problem(&client.post("/v1/check", &search("mallory", 1)), 403, "denied");
    problem(&client.post("/v1/check", r#"{"attributes":{"action":"retired","user":"u"}}"#), 403, "denied");
    let unmatched = client.post("/v1/check", r#"{"attributes":{}}"#);
    assert_eq!((unmatched.status, unmatched.header("ratelimit")), (200, None));
    let unmatched = unmatched.json();
    assert_eq!((&unmatched["source"], &unmatched["receipt"]), (&json!("unmatched"), &Value::Null));

    // A cost above the capacity.
    let document = problem(&client.post("/v1/check", &search("jane", 6)), 413, "cost-above-capacity");
    let detail = document["detail"].as_str().expect("a reason");
    assert!(detail.contains("cost 6") && detail.contains("capacity 5"), "{detail}");
}

#[test]
fn a_repeated_request_id_is_charged_once() {
    let (_serving, mut client) = served();
    let with_id = |cost: u64| {
        json!({ "attributes": { "action": "search", "user": "jane" }, "cost": cost, "id": "r-1" }).to_string()
    };
    let (first, again) = (client.post("/v1/check", &with_id(2)), client.post("/v1/check", &with_id(2)));
    assert_eq!((first.status, &first.json()), (200, &again.json()));
    assert_eq!(client.post("/v1/peek", &search("jane", 1)).json()["remaining"], 2);
    problem(&client.post("/v1/check", &with_id(1)), 409, "request-id-reused");
}

#[test]
fn a_peek_charges_nothing_and_a_refund_gives_back() {
    let (_serving, mut client) = served();
    for _ in 0..3 {
        let peeked = client.post("/v1/peek", &search("jane", 4)).json();
        assert_eq!((&peeked["remaining"], &peeked["receipt"]), (&json!(1), &Value::Null));
    }
    let charged = client.post("/v1/check", &search("jane", 4)).json();
    assert_eq!(client.post("/v1/peek", &search("jane", 4)).status, 429);
    let receipt = charged["receipt"].as_str().expect("a receipt").to_owned();
    let refunded = client.post("/v1/refund", &json!({ "receipt": receipt }).to_string());
    assert_eq!(refunded.status, 200);
    let all = json!({ "rule": "per-user", "amount": 4, "declined": null, "already_returned": false });
    assert_eq!(refunded.json(), json!({ "rules": [all] }));
    assert_eq!(client.post("/v1/peek", &search("jane", 4)).status, 200);

    // Forged and changed receipts are refused.
    let mut forged = receipt.clone();
    forged.replace_range(60..61, if &receipt[60..61] == "A" { "B" } else { "A" });
    for wrong in ["", "AAAA", &forged, &receipt[..receipt.len() - 1]] {
        let answer = client.post("/v1/refund", &json!({ "receipt": wrong }).to_string());
        problem(&answer, 422, "receipt-unknown");
    }
}

#[test]
fn a_batch_is_answered_check_by_check_and_in_order() {
    let (_serving, mut client) = served();
    let check =
        |user: &str, cost: u64| json!({ "attributes": { "action": "search", "user": user }, "cost": cost });
    let batch = json!([check("jane", 3), check("jane", 3), check("jane", 6), check("john", 5)]).to_string();
    let answer = client.post("/v1/check/batch", &batch);
    assert_eq!(answer.status, 200);
    let answers = answer.json();
    let statuses: Vec<&Value> =
        answers.as_array().expect("a list").iter().map(|one| &one["status"]).collect();
    assert_eq!(statuses, [200, 429, 413, 200]);
    assert_eq!((&answers[0]["remaining"], &answers[3]["remaining"]), (&json!(2), &json!(0)));
    assert_eq!(answers[1]["code"], "quota-exceeded");
    // If one check is invalid, none is made.
    let broken = json!([check("joan", 1), { "attributes": 1 }]).to_string();
    problem(&client.post("/v1/check/batch", &broken), 400, "bad-request");
    assert_eq!(client.post("/v1/peek", &search("joan", 5)).status, 200);
}

#[test]
fn a_receipt_is_refunded_once_whole_or_in_part() {
    let (_serving, mut client) = served();
    let charged = client.post("/v1/check", &search("jane", 5)).json();
    let refund = |amount: Value| match amount {
        Value::Null => json!({ "receipt": charged["receipt"] }).to_string(),
        amount => json!({ "receipt": charged["receipt"], "amount": amount }).to_string(),
    };
    for invalid in [json!(0), json!(-1), json!(1.5), json!("2"), json!(1_u64 << 53)] {
        problem(&client.post("/v1/refund", &refund(invalid)), 400, "bad-request");
    }
    let returned = client.post("/v1/refund", &refund(json!(2))).json();
    assert_eq!(returned["rules"][0]["amount"], 2);
    assert_eq!(returned["rules"][0]["already_returned"], false);
    let again = client.post("/v1/refund", &refund(Value::Null)).json();
    assert_eq!(
        (&again["rules"][0]["amount"], &again["rules"][0]["already_returned"]),
        (&json!(2), &json!(true))
    );
    assert_eq!(client.post("/v1/peek", &search("jane", 2)).status, 200);
    assert_eq!(client.post("/v1/peek", &search("jane", 3)).status, 429);
}

#[test]
fn a_lease_is_held_renewed_and_released_by_its_receipt() {
    let (_serving, mut client) = served();
    let export = json!({ "attributes": { "action": "export", "user": "jane" } }).to_string();
    let held = client.post("/v1/leases", &export);
    assert_eq!(held.status, 200);
    let held = held.json();
    assert!(held["expires_at_ms"].as_u64() > held["reset_at_ms"].as_u64().map(|at| at - 10_000));
    problem(&client.post("/v1/leases", &export), 429, "quota-exceeded");
    let receipt = json!({ "receipt": held["receipt"] }).to_string();
    let one = json!({ "rules": [{ "rule": "at-once", "amount": 1, "declined": null }] });
    let mut renewed = one.clone();
    renewed["lease_ms"] = json!(3_600_000);
    assert_eq!(client.post("/v1/leases/renew", &receipt).json(), renewed);
    assert_eq!(client.post("/v1/leases/release", &receipt).json(), one);
    problem(&client.post("/v1/leases/renew", &receipt), 409, "lease-lost");
    let gone = json!({ "rules": [{ "rule": "at-once", "amount": 0, "declined": "not-held" }] });
    assert_eq!(client.post("/v1/leases/release", &receipt).json(), gone);
    assert_eq!(client.post("/v1/leases", &export).status, 200);

    // Without a concurrency rule, nothing is charged.
    problem(&client.post("/v1/leases", &search("jane", 1)), 422, "no-lease");
    let charged = client.post("/v1/check", &search("jane", 5));
    assert_eq!(charged.status, 200);
    let receipt = json!({ "receipt": charged.json()["receipt"] }).to_string();
    problem(&client.post("/v1/leases/renew", &receipt), 422, "no-lease");
    problem(&client.post("/v1/leases/release", &receipt), 422, "no-lease");
}

#[test]
fn reports_make_a_penalty_grow_and_clear_it() {
    let (_serving, mut client) = served();
    let login = json!({ "attributes": { "action": "login", "user": "jane" } }).to_string();
    let report = |result: &str| {
        json!({ "attributes": { "action": "login", "user": "jane" }, "result": result }).to_string()
    };
    for failures in 1..=2 {
        assert_eq!(client.post("/v1/peek", &login).status, 200);
        let reported = client.post("/v1/report", &report("failure")).json();
        assert_eq!(
            reported,
            json!({ "rules": [{ "rule": "attempts", "amount": failures, "declined": null }] })
        );
    }
    problem(&client.post("/v1/check", &login), 429, "quota-exceeded");
    assert_eq!(client.post("/v1/report", &report("success")).status, 200);
    assert_eq!(client.post("/v1/check", &login).status, 200);
}

#[test]
fn a_delay_is_returned() {
    let (_serving, mut client) = served();
    let send = json!({ "attributes": { "action": "send", "user": "jane" } }).to_string();
    assert_eq!(client.post("/v1/check", &send).json()["delay_ms"], 0);
    let delayed = client.post("/v1/check", &send).json();
    let delay_ms = delayed["delay_ms"].as_u64().expect("a number");
    assert!((5_000..=10_000).contains(&delay_ms), "{delay_ms}");
    assert_eq!(delayed["allowed"], true);
}

#[test]
fn pages_answer_get_and_head_and_nothing_else() {
    let (_serving, mut client) = served();
    for path in ["/healthz", "/readyz", "/v1/rules"] {
        let got = client.get(path);
        assert_eq!(got.status, 200, "{path}");
        client.send(&request("HEAD", path, &[], b""));
        let head = client.answer_to(false);
        assert_eq!(
            (head.status, head.header("content-length")),
            (200, got.header("content-length")),
            "{path}"
        );
        let refused = client.post(path, "{}");
        problem(&refused, 405, "method-not-allowed");
        assert_eq!(refused.header("allow"), Some("GET, HEAD"), "{path}");
    }
    let refused = client.get("/v1/check");
    problem(&refused, 405, "method-not-allowed");
    assert_eq!(refused.header("allow"), Some("POST"));
    problem(&client.get("/v1/checks"), 404, "not-found");
    let rules = client.get("/v1/rules").json();
    assert_eq!(rules["rules"][0]["id"], "per-user");
}

#[test]
fn authorize_responds_with_status_and_headers_and_no_body() {
    let (_serving, mut client) = served();
    let ask = "/v1/authorize?attribute=action:search&header=user:x-user";
    for method in ["GET", "POST", "DELETE", "PROPFIND"] {
        client.send(&request(method, ask, &[("x-user", "jane")], b"any body"));
        let answer = client.answer();
        assert_eq!((answer.status, answer.body.as_str()), (200, ""), "{method}");
        assert!(answer.header("ratelimit").is_some());
    }
    client.send(&request("HEAD", ask, &[("x-user", "jane")], b""));
    assert_eq!(client.answer_to(false).status, 200);
    client.send(&request("GET", ask, &[("x-user", "jane")], b""));
    let refused = client.answer();
    problem(&refused, 429, "quota-exceeded");
    assert!(refused.header("retry-after").is_some());
    for status in [403, 401, 499] {
        let ask = format!("{ask}&deny_status={status}");
        client.send(&request("GET", &ask, &[("x-user", "jane")], b""));
        assert_eq!(client.answer().status, status);
    }
}
