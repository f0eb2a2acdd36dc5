//! Meters over HTTP: whole numbers and decimals, all or none, and retries.

use serde_json::{Value, json};

use super::client::Client;
use super::{problem, served};

fn add(client: &mut Client, members: Value) -> super::client::Response {
    let mut body = json!({ "attributes": { "action": "seat", "user": "jane" } });
    for (name, value) in members.as_object().expect("members") {
        body[name] = value.clone();
    }
    client.post("/v1/meters/add", &body.to_string())
}

/// The value of each meter.
fn values(client: &mut Client) -> Vec<(String, Value)> {
    let body = json!({ "attributes": { "action": "seat", "user": "jane" } }).to_string();
    let read = client.post("/v1/meters", &body);
    assert_eq!(read.status, 200, "{read:?}");
    let read = read.json();
    let meters = read["meters"].as_array().expect("a list").iter();
    meters.map(|meter| (meter["rule"].as_str().expect("a rule").to_owned(), meter["value"].clone())).collect()
}

#[test]
fn meters_are_added_to_together_or_one_by_one() {
    let (_serving, mut client) = served();
    let both = |seats: u64, credits: u64| {
        vec![("seats".to_owned(), json!(seats)), ("credits".to_owned(), json!(credits))]
    };
    assert_eq!(values(&mut client), both(0, 0), "a meter starts at zero");
    let added = add(&mut client, json!({ "amount": 4 }));
    assert_eq!(added.status, 200, "{added:?}");
    let seats = json!({ "rule": "seats", "value": 4, "limit": 10, "remaining": 6 });
    assert_eq!((&added.json()["meters"][0], &added.json()["replayed"]), (&seats, &json!(false)));
    assert_eq!(add(&mut client, json!({ "amount": 500, "rule": "credits" })).status, 200);
    assert_eq!(values(&mut client), both(4, 504));
    // One of them is full: nothing is added to either.
    let full = problem(&add(&mut client, json!({ "amount": 7 })), 429, "meter-full");
    let detail = full["detail"].as_str().expect("a detail");
    assert!(detail.contains("\"seats\" has room for 6 more"), "{detail}");
    problem(&add(&mut client, json!({ "amount": 11, "rule": "seats" })), 413, "cost-above-capacity");
    problem(&add(&mut client, json!({ "amount": 1, "rule": "per-user" })), 422, "nothing-matched");
    let other = json!({ "attributes": { "action": "search", "user": "jane" }, "amount": 1 }).to_string();
    problem(&client.post("/v1/meters/add", &other), 422, "nothing-matched");
    assert_eq!(values(&mut client), both(4, 504));
}

#[test]
fn decimal_amounts_are_exact() {
    let (_serving, mut client) = served();
    let credits = |amount: &str| json!({ "amount": amount, "scale": 2, "rule": "credits" });
    for _ in 0..10 {
        assert_eq!(add(&mut client, credits("0.1")).status, 200);
    }
    let added = add(&mut client, credits("0.07")).json();
    let expected = json!({ "rule": "credits", "value": "1.07", "limit": "10.00", "remaining": "8.93" });
    assert_eq!(added["meters"], json!([expected]));
    for wrong in
        [json!(0.5), json!("0.001"), json!("-1"), json!("1e2"), json!("0"), json!(0), json!(-1), Value::Null]
    {
        let body = json!({ "amount": wrong, "scale": 2, "rule": "credits" });
        problem(&add(&mut client, body), 400, "bad-request");
    }
    problem(&add(&mut client, json!({ "amount": 1, "scale": 16 })), 400, "bad-request");
    assert_eq!(values(&mut client)[1].1, json!(107), "a meter counts units");
}

#[test]
fn an_addition_with_an_id_is_made_once() {
    let (_serving, mut client) = served();
    let with_id = |amount: u64| json!({ "amount": amount, "id": "a-1" });
    let (first, again) = (add(&mut client, with_id(3)), add(&mut client, with_id(3)));
    assert_eq!((first.status, &first.json()["replayed"]), (200, &json!(false)));
    assert_eq!((again.status, &again.json()["replayed"]), (200, &json!(true)));
    assert_eq!(first.json()["meters"], again.json()["meters"]);
    problem(&add(&mut client, with_id(4)), 409, "request-id-reused");
    assert_eq!(values(&mut client)[0].1, json!(3));
}

#[test]
fn subtraction_stops_at_zero_and_a_reset_needs_a_token() {
    let (_serving, mut client) = served();
    assert_eq!(add(&mut client, json!({ "amount": 4 })).status, 200);
    let subtract = |amount: u64, id: &str| {
        json!({ "attributes": { "action": "seat", "user": "jane" }, "amount": amount, "rule": "seats", "id": id })
            .to_string()
    };
    for replayed in [false, true] {
        let answer = client.post("/v1/meters/subtract", &subtract(3, "s-1")).json();
        let three = json!({ "rule": "seats", "amount": 3, "declined": null });
        assert_eq!(answer, json!({ "meters": [three], "replayed": replayed }));
    }
    let answer = client.post("/v1/meters/subtract", &subtract(9, "s-2")).json();
    assert_eq!(answer["meters"][0]["amount"], 1, "{answer}");
    assert_eq!(values(&mut client), [("seats".to_owned(), json!(0)), ("credits".to_owned(), json!(4))]);
    let reset = json!({ "attributes": { "action": "seat", "user": "jane" } }).to_string();
    problem(&client.post("/v1/meters/reset", &reset), 401, "unauthorized");
}
