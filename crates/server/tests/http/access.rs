//! Settings over HTTP: access, trusted proxies and header dialects.

use tollgate_testkit::serving::create_token;

use super::client::{Client, request};
use super::start;
use super::{RULES, problem, search};

const JSON: (&str, &str) = ("content-type", "application/json");

/// A new token and its digest, as `tollgate token` prints them.
fn token() -> (String, String) {
    let created = create_token(env!("CARGO_BIN_EXE_tollgate"), "check");
    (created.token, created.digest)
}

#[test]
fn tokens_permit_what_their_scopes_say_and_nothing_else() {
    let folder = tempfile::tempdir().expect("a folder");
    let scopes = ["check", "refund", "report", "record", "metrics", "read", "change", "admin"];
    let mut tokens = vec![(String::new(), "none"), ("guessed".to_owned(), "none")];
    let mut config = "tokens:\n".to_owned();
    for scope in scopes {
        let (token, digest) = token();
        tokens.push((token, scope));
        config += &format!("  - {{ name: {scope}, digest: \"{digest}\", scopes: [{scope}] }}\n");
    }
    let file = folder.path().join("tollgate.yaml");
    std::fs::write(&file, config).expect("a file can be written");
    let serving = start(&["--rules", RULES, "--config", file.to_str().expect("a path of text")]);
    let mut client = Client::connect(serving.http);
    let check = search("jane", 1);
    for (method, path, needs) in [
        ("POST", "/v1/check", "check"),
        ("POST", "/v1/check/batch", "check"),
        ("POST", "/v1/peek", "check"),
        ("POST", "/v1/refund", "refund"),
        ("POST", "/v1/leases", "check"),
        ("POST", "/v1/leases/renew", "check"),
        ("POST", "/v1/leases/release", "check"),
        ("POST", "/v1/report", "report"),
        ("POST", "/v1/usage", "check"),
        ("POST", "/v1/reservations", "check"),
        ("POST", "/v1/record", "record"),
        ("POST", "/v1/credit", "record"),
        ("POST", "/v1/reservations/extend", "check"),
        ("POST", "/v1/meters/subtract", "record"),
        ("POST", "/v1/reservations/settle", "refund"),
        ("POST", "/v1/reservations/cancel", "refund"),
        ("POST", "/v1/meters", "check"),
        ("POST", "/v1/meters/add", "check"),
        ("POST", "/v1/meters/reset", "change"),
        ("POST", "/v1/reset", "change"),
        ("GET", "/v1/authorize", "check"),
        ("POST", "/v1/explain", "read"),
        ("GET", "/v1/rules", "read"),
        ("GET", "/metrics", "metrics"),
        ("GET", "/v1/history", "read"),
        ("GET", "/v1/whoami", "read"),
        ("GET", "/v1/fleet", "read"),
        ("GET", "/healthz", ""),
        ("GET", "/readyz", ""),
        ("GET", "/openapi.json", ""),
    ] {
        for (token, scope) in &tokens {
            let shown = format!("Bearer {token}");
            let fields = [JSON, ("authorization", &*shown)];
            let fields = if token.is_empty() { &fields[..1] } else { &fields[..] };
            client.send(&request(method, path, fields, check.as_bytes()));
            let answer = client.answer();
            let what = format!("{method} {path} with {scope}");
            // The scope `read` includes `metrics`, and lets operators look at usage.
            let is_looking = *scope == "read" && (needs == "metrics" || path == "/v1/usage");
            if needs.is_empty() || needs == *scope || is_looking {
                assert!(![401, 403].contains(&answer.status), "{what}: {answer:?}");
            } else if *scope == "none" {
                problem(&answer, 401, "unauthorized");
                assert_eq!(answer.header("www-authenticate"), Some(r#"Bearer realm="tollgate""#), "{what}");
            } else {
                problem(&answer, 403, "forbidden");
            }
        }
    }
}

/// A settlement can book beyond the limit, which `refund` alone does not permit.
#[test]
fn a_settlement_above_the_reservation_needs_the_scope_record() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut config = "anonymous: none\ntokens:\n".to_owned();
    let tokens: Vec<String> = ["check, refund", "check, refund, record"]
        .into_iter()
        .enumerate()
        .map(|(index, scopes)| {
            let (token, digest) = token();
            config += &format!("  - {{ name: t{index}, digest: \"{digest}\", scopes: [{scopes}] }}\n");
            format!("Bearer {token}")
        })
        .collect();
    let file = folder.path().join("tollgate.yaml");
    std::fs::write(&file, config).expect("a file can be written");
    let serving = start(&["--rules", RULES, "--config", file.to_str().expect("a path of text")]);
    let mut client = Client::connect(serving.http);
    let mut post = |token: &str, path: &str, body: serde_json::Value| {
        let body = body.to_string();
        client.send(&request("POST", path, &[JSON, ("authorization", token)], body.as_bytes()));
        client.answer()
    };
    let batch = serde_json::json!({ "attributes": { "action": "batch", "user": "jane" }, "cost": 40 });
    let receipt = post(&tokens[0], "/v1/reservations", batch.clone()).json()["receipt"].clone();
    let settle = |actual: u64| serde_json::json!({ "receipt": receipt, "actual": actual });
    problem(&post(&tokens[0], "/v1/reservations/settle", settle(41)), 403, "forbidden");
    let above = serde_json::json!({ "receipt": receipt, "actual": 1, "rules": { "batches": 41 } });
    problem(&post(&tokens[0], "/v1/reservations/settle", above), 403, "forbidden");
    assert_eq!(post(&tokens[0], "/v1/reservations/settle", settle(40)).status, 200);
    let receipt = post(&tokens[1], "/v1/reservations", batch).json()["receipt"].clone();
    let settled =
        post(&tokens[1], "/v1/reservations/settle", serde_json::json!({ "receipt": receipt, "actual": 90 }));
    assert_eq!(settled.status, 200, "{settled:?}");
    let usage = serde_json::json!({ "attributes": { "action": "batch", "user": "jane" } });
    let usage = post(&tokens[1], "/v1/usage", usage).json();
    assert_eq!(
        (&usage["rules"][0]["used"], &usage["rules"][0]["overdraft"]),
        (&130.into(), &30.into()),
        "{usage}"
    );
}

#[test]
fn a_reset_needs_the_scope_change_and_is_logged_with_the_token() {
    let folder = tempfile::tempdir().expect("a folder");
    let (token, digest) = token();
    let file = folder.path().join("tollgate.yaml");
    let config = format!(
        "anonymous: [check, read]\ntokens:\n  - {{ name: operator, digest: \"{digest}\", scopes: [change] }}\n"
    );
    std::fs::write(&file, config).expect("a file can be written");
    let serving = start(&["--rules", RULES, "--config", file.to_str().expect("a path of text")]);
    let mut client = Client::connect(serving.http);
    let authorization = format!("Bearer {token}");
    let mut reset = |body: &str| {
        client.send(&request(
            "POST",
            "/v1/reset",
            &[JSON, ("authorization", &authorization)],
            body.as_bytes(),
        ));
        client.answer()
    };
    let mut other = Client::connect(serving.http);
    assert_eq!(other.post("/v1/check", &search("jane", 5)).status, 200);
    assert_eq!(other.post("/v1/check", &search("jane", 1)).status, 429);
    problem(&other.post("/v1/reset", r#"{"attributes":{"user":"jane"}}"#), 401, "unauthorized");
    // Another rule, or attributes that no rule matches: nothing happens, and the response says so.
    let of = |rule: &str| format!(r#"{{"attributes":{{"user":"jane","action":"search"}},"rule":"{rule}"}}"#);
    problem(&reset(&of("other")), 422, "nothing-matched");
    problem(&reset(r#"{"attributes":{"unused":"x"}}"#), 422, "nothing-matched");
    problem(&reset(r#"{"rule":"per-user"}"#), 400, "bad-request");
    assert_eq!(other.post("/v1/check", &search("jane", 1)).status, 429);
    let answer = reset(&of("per-user"));
    assert_eq!((answer.status, answer.json()["rules"][0]["rule"].as_str()), (200, Some("per-user")));
    assert_eq!(other.post("/v1/check", &search("jane", 5)).status, 200);
    let mut logged = serving.wait_for("reset");
    while logged["matched"] == 0 {
        logged = serving.wait_for("reset");
    }
    assert_eq!((&logged["token"], &logged["edge"]), (&"operator".into(), &"http".into()));
    assert_eq!((&logged["rules"], &logged["rule"]), (&"per-user".into(), &"per-user".into()));
    assert!(!serving.text().contains("jane"), "no value of a subject is logged");
}

#[test]
fn every_header_dialect_is_supported() {
    for (dialect, names) in [
        ("ietf-08", &["ratelimit-policy", "ratelimit"][..]),
        ("ietf-07", &["ratelimit-policy", "ratelimit"]),
        ("ietf-06", &["ratelimit-policy", "ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"]),
        ("x-ratelimit-epoch", &["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"]),
        ("x-ratelimit-delta", &["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"]),
    ] {
        let serving = start(&["--rules", RULES, "--headers", dialect]);
        let mut client = Client::connect(serving.http);
        for status in [200, 429] {
            let answer = client.post("/v1/check", &search("jane", 3));
            assert_eq!(answer.status, status);
            let found: Vec<&str> = answer
                .headers
                .iter()
                .map(|(name, _)| name.as_str())
                .filter(|name| name.contains("ratelimit"))
                .collect();
            assert_eq!(found, names, "{dialect}");
            assert_eq!(answer.header("retry-after").is_some(), status == 429);
        }
    }
}

#[test]
fn forwarding_headers_are_used_from_trusted_proxies_only() {
    let rules = "version: 1\nrules:\n  - { id: by-path, match: { path: /paid, method: POST, host: shop.example }, per: ip, limit: { sliding-log: 1/h } }\n";
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("rules.yaml");
    std::fs::write(&file, rules).expect("a file can be written");
    let file = file.to_str().expect("a path of text");
    let trusting =
        start(&["--rules", file, "--trusted-proxies", "127.0.0.0/8", "--proxy-header", "x-forwarded-for"]);
    let untrusting = start(&["--rules", file]);
    let ask = |server: &tollgate_testkit::serving::Serving, fields: &[(&str, &str)]| {
        let mut client = Client::connect(server.http);
        client.send(&request("GET", "/v1/authorize", fields, b""));
        let answer = client.answer();
        (answer.status, answer.header("ratelimit").is_some())
    };
    let from = |client: &'static str| {
        [
            ("x-forwarded-method", "POST"),
            ("x-forwarded-uri", "/paid?with=query"),
            ("x-forwarded-host", "Shop.Example:443"),
            ("x-forwarded-for", client),
        ]
    };
    // The rule matches the forwarded request, and counts the forwarded client.
    assert_eq!(ask(&trusting, &from("203.0.113.1")), (200, true));
    assert_eq!(ask(&trusting, &from("203.0.113.1")), (429, true));
    assert_eq!(
        ask(&trusting, &from("198.51.100.7, 203.0.113.1")),
        (429, true),
        "the client may have written the left end"
    );
    assert_eq!(ask(&trusting, &from("203.0.113.2")), (200, true));
    let nginx = [
        ("x-original-method", "POST"),
        ("x-original-uri", "http://any/paid"),
        ("x-forwarded-host", "shop.example"),
        ("x-forwarded-for", "203.0.113.2"),
    ];
    assert_eq!(ask(&trusting, &nginx), (429, true));
    // Another spelling of the path does not avoid the rule, and a query may contain any characters.
    for path in ["/%70aid", "//paid", "/./paid", "/free/../paid", "/paid?q=<b>"] {
        let written = [nginx[0], ("x-original-uri", path), nginx[2], nginx[3]];
        assert_eq!(ask(&trusting, &written), (429, true), "{path}");
    }
    // A trailing dot names the same host.
    let dotted = [nginx[0], nginx[1], ("x-forwarded-host", "shop.example."), nginx[3]];
    assert_eq!(ask(&trusting, &dotted), (429, true));
    // Forwarding headers that differ are an error.
    let both = [nginx[0], nginx[1], nginx[2], nginx[3], ("x-forwarded-uri", "/free")];
    assert_eq!(ask(&trusting, &both), (400, false));
    let twice = [nginx[0], nginx[1], nginx[2], nginx[3], ("x-original-uri", "/free")];
    assert_eq!(ask(&trusting, &twice), (400, false));
    assert_eq!(ask(&trusting, &[("x-forwarded-uri", "a b")]), (400, false));
    // The client's own token is not meant for this server.
    let with_token = [nginx[0], nginx[1], nginx[2], nginx[3], ("authorization", "Bearer of-the-client")];
    assert_eq!(ask(&trusting, &with_token), (429, true));
    // Headers of other peers are ignored.
    for _ in 0..3 {
        assert_eq!(ask(&untrusting, &from("203.0.113.1")), (200, false));
    }
}
