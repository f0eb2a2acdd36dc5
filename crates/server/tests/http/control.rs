//! Which listener serves what, and to which hosts and origins.

use super::client::{Client, request};
use super::{RULES, problem, search, start};

const JSON: (&str, &str) = ("content-type", "application/json");

/// A request with this host instead of `localhost`.
fn request_to(host: &str, method: &str, path: &str, fields: &[(&str, &str)], body: &str) -> Vec<u8> {
    let bytes = request(method, path, fields, body.as_bytes());
    let text = String::from_utf8(bytes).expect("text");
    text.replace("host: localhost\r\n", &format!("host: {host}\r\n")).into_bytes()
}

#[test]
fn a_control_listener_serves_control_routes_and_http_serves_checks() {
    let serving = start(&["--rules", RULES, "--admin", "127.0.0.1:0"]);
    let mut http = Client::connect(serving.http);
    let mut admin = Client::connect(serving.admin.expect("a separate listener"));
    assert_eq!(http.post("/v1/check", &search("jane", 1)).status, 200);
    problem(&admin.post("/v1/check", &search("jane", 1)), 404, "not-found");
    for path in ["/", "/dashboard/style.css", "/v1/history"] {
        assert_eq!(admin.get(path).status, 200, "{path}");
        problem(&http.get(path), 404, "not-found");
    }
    problem(&http.post("/v1/reset", r#"{"attributes":{}}"#), 404, "not-found");
    // Without a token, no caller has the scope `change`.
    problem(&admin.post("/v1/reset", r#"{"attributes":{}}"#), 401, "unauthorized");
    for path in ["/metrics", "/healthz", "/readyz", "/v1/rules", "/openapi.json"] {
        assert_eq!((admin.get(path).status, http.get(path).status), (200, 200), "{path}");
    }
}

#[test]
fn unknown_hosts_and_foreign_origins_are_refused_on_a_loopback_listener() {
    let serving = start(&["--rules", RULES, "--allowed-hosts", "tollgate.internal"]);
    let mut client = Client::connect(serving.http);
    let mut send = |host: &str, method: &str, path: &str, fields: &[(&str, &str)]| {
        client.send(&request_to(host, method, path, fields, &search("jane", 0)));
        client.answer()
    };
    let of_the_page = [JSON, ("origin", "https://shop.example"), ("sec-fetch-site", "cross-site")];
    for path in ["/v1/check", "/v1/peek", "/v1/explain"] {
        problem(&send("shop.example", "POST", path, &[JSON]), 421, "unknown-host");
        problem(&send("localhost", "POST", path, &of_the_page[..2]), 403, "cross-origin");
        problem(&send("localhost", "POST", path, &[JSON, of_the_page[2]]), 403, "cross-origin");
        assert_eq!(send("tollgate.internal:8080", "POST", path, &[JSON]).status, 200, "{path}");
        assert_eq!(send("127.0.0.1", "POST", path, &[JSON]).status, 200, "{path}");
    }
    problem(&send("rebound.example", "GET", "/metrics", &[]), 421, "unknown-host");
    // Gateways pass the host and the origin of their clients on.
    let of_a_client = [("origin", "https://shop.example")];
    for path in ["/v1/authorize", "/healthz", "/readyz"] {
        assert_eq!(send("shop.example", "GET", path, &of_a_client).status, 200, "{path}");
    }
}
