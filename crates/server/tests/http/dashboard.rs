//! The dashboard in a real browser, and the paths that it reads.

use serde_json::json;
use tollgate_testkit::redis::{Flavour, Server};
use tollgate_testkit::serving::create_token;
use tollgate_testkit::tools::{Tool, free_port};

use super::client::{Client, request};
use super::{RULES, problem, search, start};

const BINARY: &str = env!("CARGO_BIN_EXE_tollgate");
/// Where screenshots are written, if this variable is set.
const SCREENSHOTS: &str = "TOLLGATE_SCREENSHOTS";

/// Uses every page and action as people do: see the scenes in `browser/`.
#[test]
fn every_page_works_in_a_browser() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("a file can be written");
        path.to_str().expect("a path of text").to_owned()
    };
    // Markup, a direction mark and a long text are shown as they are written.
    let hostile = format!("<img src=x onerror=alert(1)></script>\u{202e}{}", "x".repeat(1_024));
    let added = json!({ "id": "hostile", "description": hostile, "match": { "action": "other" }, "per": "user",
                        "limit": { "fixed-window": "1/h" } });
    let text = std::fs::read_to_string(RULES)
        .expect("the rules")
        .replace("rules:\n", &format!("rules:\n  - {added}\n"))
        .replace("- id: batches\n", "- id: batches\n    ledger: { name: user }\n");
    let rules = file("rules.yaml", &text);
    let (change, read) = (create_token(BINARY, "change,read,check"), create_token(BINARY, "read"));
    let access = format!("anonymous: check\ntokens:\n{}\n{}\n", change.line, read.line);
    let (config, key) = (file("tollgate.yaml", &access), file("key", &"6b".repeat(32)));
    let redis = Server::start(Flavour::Redis70).expect("a server starts");
    let database = format!("sqlite:{}", folder.path().join("usage.db").display());
    let (store, data) = (redis.url(), folder.path().join("data").display().to_string());
    let shop = start(
        &[
            ["--rules", &rules, "--config", &config, "--hash-key-file", &key].as_slice(),
            // A busy machine must not make a failure policy answer.
            &["--store", &store, "--store-deadline", "5s", "--database", &database, "--data-dir", &data],
        ]
        .concat(),
    );
    let open = start(&["--rules", RULES]);
    let lost = format!("127.0.0.1:{}", free_port());
    let task = json!({
        "shop": { "url": format!("http://{}", shop.http), "change": change.token, "read": read.token },
        "open": format!("http://{}", open.http),
        // A scene kills this one and starts it again.
        "lost": { "url": format!("http://{lost}"), "binary": BINARY,
                  "args": ["serve", "--rules", RULES, "--http", lost, "--resp", "127.0.0.1:0"] },
        "folder": std::env::var(SCREENSHOTS).ok(),
    });
    let task = file("task.json", &task.to_string());
    let scenes = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/http/browser/main.js");
    let done = Tool::Browser.command().args([scenes, &task]).output().expect("node runs");
    let output =
        format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success() && output.ends_with("good\n"), "{output}");
    println!("{output}");
}

#[test]
fn the_history_has_what_was_refused() {
    let serving = start(&["--rules", RULES]);
    let mut client = Client::connect(serving.http);
    for _ in 0..8 {
        client.post("/v1/check", &search("jane", 1));
    }
    let refused = || {
        let mut client = Client::connect(serving.http);
        let history = client.get("/v1/history?range=2m&rule=per-user").json();
        (history["rules"][0]["refused"].clone(), history["rules"][0]["allowed"].clone())
    };
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while refused() != (json!(3), json!(5)) {
        assert!(std::time::Instant::now() < deadline, "{:?}", refused());
        std::thread::yield_now();
    }
    for query in ["range=2d", "token=x", "rule=a&x=1"] {
        problem(&client.get(&format!("/v1/history?{query}")), 400, "invalid-query");
    }
    problem(&client.get("/v1/events?token=x"), 400, "invalid-query");
}

#[test]
fn the_fleet_lists_every_server_and_whoami_the_scopes() {
    let alone = start(&["--rules", RULES]);
    let mut client = Client::connect(alone.http);
    assert_eq!(client.get("/v1/fleet").json(), json!({ "servers": null, "unheard": false }));
    let me = client.get("/v1/whoami").json();
    assert_eq!((&me["name"], &me["anonymous"]), (&json!("(anonymous)"), &json!(true)));
    assert!(me["scopes"].as_array().expect("scopes").contains(&json!("read")), "{me}");
    assert!(!me["scopes"].as_array().expect("scopes").contains(&json!("change")), "{me}");

    let redis = Server::start(Flavour::Redis70).expect("a server starts");
    let key = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(key.path(), "6b".repeat(32)).expect("a file can be written");
    let (url, key) = (redis.url(), key.path().to_str().expect("a path of text").to_owned());
    let args = ["--rules", RULES, "--store", &url, "--hash-key-file", &key, "--store-deadline", "5s"];
    let (one, _other) = (start(&args), start(&args));
    let mut client = Client::connect(one.http);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    let servers = loop {
        let fleet = client.get("/v1/fleet").json();
        let servers = fleet["servers"].as_array().expect("a shared store").clone();
        // A server states its rules with its second announcement.
        if servers.len() == 2 && servers.iter().all(|server| server["rules"].is_string()) {
            break servers;
        }
        assert!(std::time::Instant::now() < deadline, "{fleet}");
        std::thread::yield_now();
    };
    let rules = client.get("/v1/rules").json()["fingerprint"].clone();
    let own = servers.iter().filter(|server| server["self"] == true).count();
    assert_eq!(own, 1, "{servers:?}");
    for server in &servers {
        assert_eq!((&server["version"], &server["rules"]), (&json!(env!("CARGO_PKG_VERSION")), &rules));
        assert!(server["announced_ms"].as_u64() >= server["joined_ms"].as_u64(), "{server}");
    }
}

#[test]
fn usage_can_be_read_with_the_scope_of_an_operator() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("tollgate.yaml");
    let (read, metrics) = (create_token(BINARY, "read"), create_token(BINARY, "metrics"));
    let access = format!("anonymous: []\ntokens:\n{}\n{}\n", read.line, metrics.line);
    std::fs::write(&config, access).expect("a file can be written");
    let serving =
        start(&["--rules", RULES, "--config", config.to_str().expect("text"), "--admin", "127.0.0.1:0"]);
    for at in [serving.http, serving.admin.expect("a control listener")] {
        let mut client = Client::connect(at);
        let mut usage = |token: &str| {
            let authorization = format!("Bearer {token}");
            let fields = [("content-type", "application/json"), ("authorization", authorization.as_str())];
            let body = r#"{"attributes":{"action":"search","user":"jane"}}"#;
            client.send(&request("POST", "/v1/usage", &fields, body.as_bytes()));
            client.answer()
        };
        assert_eq!(usage(&read.token).status, 200);
        problem(&usage(&metrics.token), 403, "forbidden");
    }
}

#[test]
fn the_files_of_the_dashboard_have_a_strict_policy_and_no_other_file_is_served() {
    let serving = start(&["--rules", RULES]);
    let mut client = Client::connect(serving.http);
    let page = client.get("/");
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    let policy = page.header("content-security-policy").expect("a policy");
    for part in ["default-src 'none'", "frame-ancestors 'none'", "require-trusted-types-for 'script'"] {
        assert!(policy.contains(part), "{policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(
        client.get("/dashboard/app.js").header("content-type"),
        Some("text/javascript; charset=utf-8")
    );
    for path in ["/dashboard/", "/dashboard/../lib.rs", "/dashboard/app.js.map", "/dashboard/%61pp.js"] {
        problem(&client.get(path), 404, "not-found");
    }
}

#[test]
fn events_follow_each_other_until_the_server_shuts_down() {
    let mut serving = start(&["--rules", RULES]);
    let mut client = Client::connect(serving.http);
    client.send(&request("GET", "/v1/events", &[], b""));
    let seen = client.read_until(|text| text.matches("data: {").count() == 3);
    assert!(seen.contains("text/event-stream") && seen.contains("\"ready\":true"), "{seen}");
    serving.signal("TERM");
    client.read_to_end();
    assert_eq!(serving.exit_code(), Some(0));
}
