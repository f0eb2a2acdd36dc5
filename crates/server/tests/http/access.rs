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
    let ((checks, checks_digest), (reads, reads_digest)) = (token(), token());
    let file = folder.path().join("tollgate.yaml");
    let config = format!(
        "tokens:\n  - {{ name: checks, digest: \"{checks_digest}\", scopes: [check] }}\n  \
         - {{ name: reads, digest: \"{reads_digest}\", scopes: [read] }}\n"
    );
    std::fs::write(&file, config).expect("a file can be written");
    let serving = start(&["--rules", RULES, "--config", file.to_str().expect("a path of text")]);
    let mut client = Client::connect(serving.http);
    let check = search("jane", 1);
    for (method, path, needs) in [
        ("POST", "/v1/check", "check"),
        ("POST", "/v1/check/batch", "check"),
        ("POST", "/v1/peek", "check"),
        ("POST", "/v1/refund", "check"),
        ("POST", "/v1/leases", "check"),
        ("POST", "/v1/leases/renew", "check"),
        ("POST", "/v1/leases/release", "check"),
        ("POST", "/v1/report", "check"),
        ("GET", "/v1/authorize", "check"),
        ("POST", "/v1/explain", "read"),
        ("GET", "/v1/rules", "read"),
        ("GET", "/metrics", "read"),
        ("GET", "/", "read"),
        ("GET", "/healthz", ""),
        ("GET", "/readyz", ""),
        ("GET", "/openapi.json", ""),
    ] {
        for (shown, scope) in [
            ("", "none"),
            ("Bearer guessed", "none"),
            (&format!("Bearer {checks}"), "check"),
            (&format!("bearer {reads}"), "read"),
        ] {
            let fields = [JSON, ("authorization", shown)];
            let fields = if shown.is_empty() { &fields[..1] } else { &fields[..] };
            client.send(&request(method, path, fields, check.as_bytes()));
            let answer = client.answer();
            let what = format!("{method} {path} with {scope}");
            if needs.is_empty() || needs == scope {
                assert!(![401, 403].contains(&answer.status), "{what}: {answer:?}");
            } else if scope == "none" {
                problem(&answer, 401, "unauthorized");
                assert_eq!(answer.header("www-authenticate"), Some(r#"Bearer realm="tollgate""#), "{what}");
            } else {
                problem(&answer, 403, "forbidden");
            }
        }
    }
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
