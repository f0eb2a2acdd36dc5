//! Who may call control routes, and how refused calls are counted.

use serde_json::{Value, json};

use super::http::{call, eventually};
use super::{Operators, RULES};

/// Every control route with a method and a body that would be valid.
fn routes() -> Vec<(&'static str, String, Value, &'static str)> {
    let add =
        json!({ "rule": "search", "when": { "tenant": "acme" }, "scale": 2, "for": "2h", "reason": "x" });
    let mut routes = vec![
        ("GET", "/v1/audit".to_owned(), Value::Null, "read"),
        ("POST", "/v1/reset".to_owned(), json!({ "attributes": { "tenant": "a" }, "reason": "x" }), "change"),
    ];
    for list in ["overrides", "deny", "bypass"] {
        routes.push(("GET", format!("/v1/{list}"), Value::Null, "read"));
        routes.push(("POST", format!("/v1/{list}"), add.clone(), "change"));
        routes.push(("GET", format!("/v1/{list}/x"), Value::Null, "read"));
        routes.push(("PATCH", format!("/v1/{list}/x"), json!({ "for": "1h", "reason": "x" }), "change"));
        routes.push(("DELETE", format!("/v1/{list}/x"), json!({ "reason": "x" }), "change"));
    }
    routes
}

#[test]
fn every_control_route_needs_its_scope_a_known_host_and_no_foreign_origin() {
    let operators = Operators::new();
    let server = operators.serve(&[]);
    let (change, read) = (format!("Bearer {}", operators.change), format!("Bearer {}", operators.read));
    for (method, path, body, scope) in routes() {
        let what = format!("{method} {path}");
        let send = |fields: &[(&str, &str)]| {
            let answer = call(server.http, method, &path, fields, &body);
            (answer.status, answer.json["code"].as_str().unwrap_or_default().to_owned())
        };
        let refused = |status: u16, code: &str| (status, code.to_owned());
        assert_eq!(send(&[]), refused(401, "unauthorized"), "{what}");
        assert_eq!(send(&[("authorization", "Bearer tg_guessed")]), refused(401, "unauthorized"), "{what}");
        if scope == "change" {
            assert_eq!(send(&[("authorization", &read)]), refused(403, "forbidden"), "{what}");
        } else {
            assert!(![401, 403].contains(&send(&[("authorization", &read)]).0), "{what}");
        }
        let token = ("authorization", change.as_str());
        assert_eq!(send(&[token, ("host", "evil.example")]), refused(421, "unknown-host"), "{what}");
        let origin = ("origin", "https://evil.example");
        assert_eq!(send(&[token, origin]), refused(403, "cross-origin"), "{what}");
        assert_eq!(send(&[token, ("sec-fetch-site", "cross-site")]), refused(403, "cross-origin"), "{what}");
    }
    assert_eq!(operators.get(&server, "/v1/overrides")["changes"], json!([]));
}

#[test]
fn control_routes_are_served_on_the_control_listener_only() {
    let operators = Operators::new();
    let server = operators.serve(&["--admin", "127.0.0.1:0"]);
    let change = format!("Bearer {}", operators.change);
    let admin = server.admin.expect("a control listener");
    for (method, path, body, _) in routes() {
        let there = call(server.http, method, &path, &[("authorization", &change)], &body);
        assert_eq!((there.status, &there.json["code"]), (404, &json!("not-found")), "{method} {path}");
        let here = call(admin, method, &path, &[("authorization", &change)], &body);
        assert!(here.json["code"] != json!("not-found"), "{method} {path} {here:?}");
    }
}

#[test]
fn without_a_database_the_answer_names_the_setting() {
    let operators = Operators::new();
    let (rules, config) = (operators.place.path("rules.yaml"), operators.place.path("tollgate.yaml"));
    let server =
        tollgate_testkit::serving::Serving::start(super::BINARY, &["--rules", &rules, "--config", &config]);
    let change = format!("Bearer {}", operators.change);
    for (method, path, body, _) in routes().into_iter().filter(|(_, path, ..)| path != "/v1/reset") {
        let answer = call(server.http, method, &path, &[("authorization", &change)], &body);
        assert_eq!((answer.status, &answer.json["code"]), (409, &json!("no-database")), "{method} {path}");
        assert!(answer.json["detail"].as_str().is_some_and(|text| text.contains("database: sqlite:PATH")));
    }
    assert!(RULES.contains("search"));
}

/// Refused calls of one token, address and route are one row with their number.
#[test]
fn refused_calls_of_a_minute_are_one_row_with_a_count() {
    let operators = Operators::new();
    let mut server = operators.serve(&[]);
    let read = format!("Bearer {}", operators.read);
    let body = json!({ "reason": "x" });
    let began_us = now_us();
    for id in 0..7 {
        let path = format!("/v1/overrides/o-{id}");
        let answer =
            call(server.http, "DELETE", &path, &[("authorization", &read), ("if-match", "\"1\"")], &body);
        assert_eq!(answer.status, 403, "{answer:?}");
    }
    assert_eq!(call(server.http, "POST", "/v1/deny", &[], &body).status, 401);
    // The rows of the current minute are written when the server ends.
    server.signal("TERM");
    assert_eq!(server.exit_code(), Some(0));
    let server = operators.serve(&[]);
    let rows = || operators.get(&server, "/v1/audit")["rows"].as_array().expect("rows").clone();
    let refused = || rows().into_iter().filter(|row| row["action"] == "call.refused").collect::<Vec<Value>>();
    assert!(eventually(|| refused().len() >= 2));
    let found: Vec<(String, String, i64, String)> = refused()
        .iter()
        .map(|row| {
            let text = |name: &str| row[name].as_str().expect("text").to_owned();
            (text("actor"), text("target"), row["times"].as_i64().expect("a number"), text("reason"))
        })
        .collect();
    let deletes: i64 = found.iter().filter(|row| row.0 == "read").map(|row| row.2).sum();
    assert_eq!(deletes, 7, "{found:?}");
    // The calls may have been in two minutes.
    let minutes = now_us() / 60_000_000 - began_us / 60_000_000;
    assert!(found.len() as i64 <= 2 + minutes, "{found:?}");
    assert!(
        found.contains(&("(anonymous)".into(), "POST /v1/deny".into(), 1, "unauthorized".into())),
        "{found:?}"
    );
}

fn now_us() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    i64::try_from(since.as_micros()).expect("before the year 294,000")
}

#[test]
fn calls_of_one_token_are_limited() {
    let operators = Operators::new();
    let server = operators.serve(&[]);
    let read = format!("Bearer {}", operators.read);
    let mut refused = None;
    for _ in 0..2_000 {
        let answer = call(server.http, "GET", "/v1/overrides/x", &[("authorization", &read)], &Value::Null);
        if answer.status == 429 {
            refused = Some(answer);
            break;
        }
        assert_eq!(answer.status, 404, "{answer:?}");
    }
    let refused = refused.expect("the bucket is empty at some point");
    assert_eq!(refused.json["code"], json!("too-many-calls"));
    assert!(refused.header("retry-after").is_some());
    // Other tokens have their own.
    assert_eq!(operators.get(&server, "/v1/overrides")["changes"], json!([]));
}
