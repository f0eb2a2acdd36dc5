//! Reservations: every state and every operation, amounts of single rules, and retries.

use serde_json::{Value, json};

use super::client::Client;
use super::{problem, served};

fn batch(user: &str, cost: u64) -> Value {
    json!({ "attributes": { "action": "batch", "user": user }, "cost": cost })
}

/// The numbers of one rule.
fn usage(client: &mut Client, action: &str, user: &str, rule: &str) -> (u64, u64, u64) {
    let body = json!({ "attributes": { "action": action, "user": user } }).to_string();
    let usage = client.post("/v1/usage", &body);
    assert_eq!(usage.status, 200, "{usage:?}");
    let usage = usage.json();
    let rules = usage["rules"].as_array().expect("a list");
    let found = rules.iter().find(|found| found["rule"] == rule).unwrap_or_else(|| panic!("{usage}"));
    let number = |name: &str| found[name].as_u64().unwrap_or_else(|| panic!("{name} of {found}"));
    (number("used"), number("held"), number("remaining"))
}

/// Reserves, and returns the body that names the receipt.
fn reserve(client: &mut Client, body: &Value) -> Value {
    let reserved = client.post("/v1/reservations", &body.to_string());
    assert_eq!(reserved.status, 200, "{reserved:?}");
    json!({ "receipt": reserved.json()["receipt"] })
}

fn with(body: &Value, member: &str, value: Value) -> String {
    let mut body = body.clone();
    body[member] = value;
    body.to_string()
}

#[test]
fn a_reservation_is_held_and_settled_at_what_was_used() {
    let (_serving, mut client) = served();
    let mut body = batch("jane", 40);
    body["ttl_ms"] = json!(3_600_000);
    let reserved = client.post("/v1/reservations", &body.to_string());
    assert_eq!(reserved.status, 200, "{reserved:?}");
    let document = reserved.json();
    assert!(document["expires_at_ms"].is_u64());
    let ttl_ms = document["ttl_ms"].as_u64().expect("a time");
    // The end is rounded up, to a 32nd of the hold.
    assert!((3_600_000..=3_600_000 * 33 / 32 + 1).contains(&ttl_ms), "{ttl_ms}");
    assert_eq!((&document["allowed"], &document["remaining"]), (&json!(true), &json!(60)));
    assert_eq!(usage(&mut client, "batch", "jane", "batches"), (0, 40, 60), "held is not used");
    // Other work gets what is left, and no more.
    problem(&client.post("/v1/reservations", &batch("jane", 61).to_string()), 429, "quota-exceeded");
    let receipt = json!({ "receipt": document["receipt"] });
    let settled = client.post("/v1/reservations/settle", &with(&receipt, "actual", json!(31)));
    let nine = json!({ "rule": "batches", "amount": 9, "declined": null, "already_returned": false });
    assert_eq!((settled.status, settled.json()), (200, json!({ "rules": [nine] })));
    assert_eq!(usage(&mut client, "batch", "jane", "batches"), (31, 0, 69));
}

#[test]
fn a_settlement_names_amounts_of_single_rules() {
    let (_serving, mut client) = served();
    let chat = json!({ "attributes": { "action": "chat", "user": "jane" }, "cost": 50 });
    let receipt = reserve(&mut client, &chat);
    assert_eq!(usage(&mut client, "chat", "jane", "streams"), (0, 1, 4), "the lease of the stream is held");
    // A rule that the reservation does not have, and amounts that are missing: nothing changes.
    let unknown =
        json!({ "receipt": receipt["receipt"], "actual": 1, "rules": { "per-user": 1 } }).to_string();
    problem(&client.post("/v1/reservations/settle", &unknown), 422, "rule-unknown");
    let missing = json!({ "receipt": receipt["receipt"], "rules": { "tokens": 1 } }).to_string();
    problem(&client.post("/v1/reservations/settle", &missing), 422, "rule-unknown");
    assert_eq!(usage(&mut client, "chat", "jane", "tokens").2, 50);
    let body = json!({ "receipt": receipt["receipt"], "actual": 30, "rules": { "throughput": 20 } });
    let settled = client.post("/v1/reservations/settle", &body.to_string());
    assert_eq!(settled.status, 200, "{settled:?}");
    assert_eq!(usage(&mut client, "chat", "jane", "tokens"), (30, 0, 70));
    assert_eq!(usage(&mut client, "chat", "jane", "throughput").0, 20);
    assert_eq!(usage(&mut client, "chat", "jane", "answers"), (1, 0, 9), "one answer is one answer");
    assert_eq!(usage(&mut client, "chat", "jane", "streams"), (0, 0, 5), "the lease is released");
}

#[test]
fn a_repeated_reservation_and_a_repeated_settlement_count_once() {
    let (_serving, mut client) = served();
    let mut body = batch("jane", 40);
    body["id"] = json!("job-7");
    let (first, again) = (reserve(&mut client, &body), reserve(&mut client, &body));
    assert_eq!(first, again, "the same receipt");
    assert_eq!(usage(&mut client, "batch", "jane", "batches").2, 60);
    body["cost"] = json!(41);
    problem(&client.post("/v1/reservations", &body.to_string()), 409, "request-id-reused");
    for _ in 0..3 {
        let settled = client.post("/v1/reservations/settle", &with(&first, "actual", json!(10))).json();
        assert_eq!(settled["rules"][0]["amount"], 30);
        assert_eq!(usage(&mut client, "batch", "jane", "batches"), (10, 0, 90));
    }
}

#[test]
fn receipts_of_others_and_changed_ones_are_refused() {
    let (_serving, mut client) = served();
    let receipt = reserve(&mut client, &batch("jane", 40));
    let text = receipt["receipt"].as_str().expect("a receipt");
    let mut forged = text.to_owned();
    forged.replace_range(60..61, if &text[60..61] == "A" { "B" } else { "A" });
    for wrong in ["", "AAAA", &forged, &text[1..]] {
        for path in ["/v1/reservations/settle", "/v1/reservations/cancel"] {
            let body = match path {
                "/v1/reservations/settle" => json!({ "receipt": wrong, "actual": 1 }),
                _ => json!({ "receipt": wrong }),
            };
            problem(&client.post(path, &body.to_string()), 422, "receipt-unknown");
        }
    }
    // A reservation of a quota is no lease.
    for path in ["/v1/leases/renew", "/v1/leases/release"] {
        problem(&client.post(path, &receipt.to_string()), 422, "no-lease");
    }
    assert_eq!(usage(&mut client, "batch", "jane", "batches").2, 60);
}

/// The answers to a settlement: the amount, or why it was declined.
fn outcome(answer: &Value) -> String {
    let rule = &answer["rules"][0];
    rule["declined"].as_str().map_or_else(|| rule["amount"].to_string(), str::to_owned)
}

/// Brings a new reservation of 40 units into a state, and returns its receipt.
fn in_state(client: &mut Client, state: &str, user: &str) -> Value {
    let mut body = batch(user, 40);
    if state == "expired" {
        body["ttl_ms"] = json!(1);
    }
    let receipt = reserve(client, &body);
    match state {
        "open" => {}
        "settled" => {
            let settled = client.post("/v1/reservations/settle", &with(&receipt, "actual", json!(25)));
            assert_eq!(outcome(&settled.json()), "15");
        }
        "cancelled" => {
            let cancelled = client.post("/v1/reservations/cancel", &receipt.to_string());
            assert_eq!(outcome(&cancelled.json()), "40");
        }
        "expired" => {
            let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
            while usage(client, "batch", user, "batches").2 < 100 {
                assert!(std::time::Instant::now() < deadline, "the hold does not end");
            }
        }
        other => panic!("{other}"),
    }
    receipt
}

/// The table of the HTTP page: every state, every call, what it answers and what counts afterwards.
#[test]
fn every_state_of_a_reservation_answers_every_call_as_the_table_says() {
    let (_serving, mut client) = served();
    let ended = "reservation-ended";
    for (row, (state, call, answer, counted)) in [
        ("open", "extend", "true", 45),
        ("open", "settle", "10", 30),
        ("open", "cancel", "40", 0),
        ("open", "refund", "40", 0),
        ("settled", "extend", ended, 25),
        ("settled", "settle", "15", 25),
        ("settled", "cancel", "not-held", 25),
        ("settled", "refund", "not-held", 25),
        ("cancelled", "extend", ended, 0),
        ("cancelled", "settle", "not-held", 0),
        ("cancelled", "cancel", "not-held", 0),
        ("cancelled", "refund", "not-held", 0),
        ("expired", "extend", ended, 0),
        ("expired", "settle", "booked-late", 30),
        ("expired", "cancel", "not-held", 0),
        ("expired", "refund", "not-held", 0),
    ]
    .into_iter()
    .enumerate()
    {
        let user = format!("row-{row}");
        let receipt = in_state(&mut client, state, &user);
        // The same call again changes nothing more.
        for attempt in 0..2 {
            let response = match call {
                "extend" => client.post("/v1/reservations/extend", &{
                    let mut body = receipt.clone();
                    (body["more"], body["id"]) = (json!(5), json!(format!("extend-{row}")));
                    body.to_string()
                }),
                "settle" => client.post("/v1/reservations/settle", &with(&receipt, "actual", json!(30))),
                "cancel" => client.post("/v1/reservations/cancel", &receipt.to_string()),
                _ => client.post("/v1/refund", &receipt.to_string()),
            };
            let document = response.json();
            let found = match (response.status, call) {
                (200, "extend") => document["allowed"].to_string(),
                (200, _) => outcome(&document),
                _ => document["code"].as_str().expect("a code").to_owned(),
            };
            let what = format!("{call} of a reservation that is {state}, attempt {attempt}: {document}");
            let expected = match (attempt, state, call) {
                // A cancelled reservation is closed: the first call took effect.
                (1, "open", "cancel" | "refund") => "not-held",
                _ => answer,
            };
            assert_eq!(found, expected, "{what}");
            let (used, held, remaining) = usage(&mut client, "batch", &user, "batches");
            assert_eq!((used + held, remaining), (counted, 100 - counted), "{what}");
        }
    }
}

#[test]
fn an_extension_holds_more_under_all_rules_or_none() {
    let (_serving, mut client) = served();
    let receipt = reserve(&mut client, &batch("jane", 40));
    let extend = |receipt: &Value, more: u64, id: &str| {
        json!({ "receipt": receipt["receipt"], "more": more, "id": id, "ttl_ms": 60_000 }).to_string()
    };
    let extended = client.post("/v1/reservations/extend", &extend(&receipt, 30, "e-1"));
    assert_eq!(extended.status, 200, "{extended:?}");
    let document = extended.json();
    assert_eq!((&document["allowed"], &document["remaining"]), (&json!(true), &json!(30)), "{document}");
    let again = client.post("/v1/reservations/extend", &extend(&receipt, 30, "e-1")).json();
    assert_eq!((&again["replayed"], &again["receipt"]), (&json!(true), &document["receipt"]), "{again}");
    problem(&client.post("/v1/reservations/extend", &extend(&receipt, 31, "e-1")), 409, "request-id-reused");
    assert_eq!(usage(&mut client, "batch", "jane", "batches").2, 30);
    // No room: the reservation stays as it was.
    let refused = client.post("/v1/reservations/extend", &extend(&document, 31, "e-2"));
    let refusal = problem(&refused, 429, "quota-exceeded");
    assert_eq!((&refusal["allowed"], &refusal["rule"]), (&json!(false), &json!("batches")), "{refusal}");
    assert!(refused.header("retry-after").is_some());
    assert_eq!(refusal["receipt"], document["receipt"]);
    assert_eq!(usage(&mut client, "batch", "jane", "batches").2, 30);
    let body = json!({ "receipt": document["receipt"], "actual": 65 }).to_string();
    let settled = client.post("/v1/reservations/settle", &body).json();
    assert_eq!(settled["rules"][0]["amount"], 5, "{settled}");
    assert_eq!(usage(&mut client, "batch", "jane", "batches"), (65, 0, 35));
}

#[test]
fn a_record_books_beyond_the_limit_and_a_credit_takes_back() {
    let (_serving, mut client) = served();
    let of = |cost: u64, id: &str| {
        json!({ "attributes": { "action": "batch", "user": "jane" }, "cost": cost, "id": id }).to_string()
    };
    let recorded = client.post("/v1/record", &of(130, "r-1"));
    assert_eq!(recorded.status, 200, "{recorded:?}");
    let document = recorded.json();
    let rule = &document["rules"][0];
    assert_eq!(
        (&rule["rule"], &rule["amount"], &rule["overdraft"]),
        (&json!("batches"), &json!(130), &json!(30))
    );
    assert_eq!((&rule["remaining"], &rule["cut"], &rule["declined"]), (&json!(0), &json!(0), &Value::Null));
    assert!(rule["retry_after_ms"].as_u64() > Some(0), "{rule}");
    let again = client.post("/v1/record", &of(130, "r-1")).json();
    assert_eq!((&again["replayed"], &again["rules"][0]["amount"]), (&json!(true), &json!(130)));
    problem(&client.post("/v1/record", &of(131, "r-1")), 409, "request-id-reused");
    problem(&client.post("/v1/check", &batch("jane", 1).to_string()), 429, "quota-exceeded");
    let credited = client.post("/v1/credit", &of(50, "c-1")).json();
    assert_eq!((&credited["rules"][0]["amount"], &credited["replayed"]), (&json!(50), &json!(false)));
    let again = client.post("/v1/credit", &of(50, "c-1")).json();
    assert_eq!((&again["rules"][0]["amount"], &again["replayed"]), (&json!(50), &json!(true)));
    assert_eq!(usage(&mut client, "batch", "jane", "batches"), (80, 0, 20));
    let credited = client.post("/v1/credit", &of(1_000, "c-2")).json();
    assert_eq!(credited["rules"][0]["amount"], 80, "never below zero");
    // Rules that cannot book decline, and the others book.
    let chat = json!({ "attributes": { "action": "chat", "user": "jane" }, "cost": 7 }).to_string();
    let recorded = client.post("/v1/record", &chat).json();
    let declined = |id: &str| {
        let rules = recorded["rules"].as_array().expect("a list");
        rules.iter().find(|rule| rule["rule"] == id).map(|rule| rule["declined"].clone())
    };
    assert_eq!((declined("tokens"), declined("streams")), (Some(Value::Null), Some(json!("not-supported"))));
}
