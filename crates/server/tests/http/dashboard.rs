//! The dashboard in a real browser, and the paths that it reads.

use std::io::Write;

use serde_json::json;
use tollgate_testkit::serving::create_token;
use tollgate_testkit::tools::Tool;

use super::client::{Client, request};
use super::{RULES, problem, search, start};

/// Where screenshots are written, if this variable is set.
const SCREENSHOTS: &str = "TOLLGATE_SCREENSHOTS";

#[test]
fn every_page_works_in_a_browser() {
    let folder = tempfile::tempdir().expect("a folder");
    let rules = folder.path().join("rules.yaml");
    // Markup, a direction mark and a long text are shown as they are written.
    let hostile = format!("<img src=x onerror=alert(1)></script>\u{202e}{}", "x".repeat(1_024));
    let added = json!({ "id": "hostile", "description": hostile, "match": { "action": "other" }, "per": "user",
                        "limit": { "fixed-window": "1/h" } });
    let text = std::fs::read_to_string(RULES)
        .expect("the rules")
        .replace("rules:\n", &format!("rules:\n  - {added}\n"));
    std::fs::write(&rules, text).expect("a file can be written");
    let token = create_token(env!("CARGO_BIN_EXE_tollgate"), "read");
    let config = folder.path().join("tollgate.yaml");
    let access = format!(
        "anonymous: []\ntokens:\n  - {{ name: reader, digest: \"{}\", scopes: [read] }}\n",
        token.digest
    );
    std::fs::write(&config, access).expect("a file can be written");
    let open = start(&["--rules", rules.to_str().expect("a path of text")]);
    let guarded = start(&["--rules", RULES, "--config", config.to_str().expect("a path of text")]);
    let task = json!({
        "open": format!("http://{}", open.http), "guarded": format!("http://{}", guarded.http),
        "token": token.token, "pid": open.process_id(), "folder": std::env::var(SCREENSHOTS).ok(),
    });
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(task.to_string().as_bytes()).expect("a file can be written");
    let mut browser = Tool::Browser.command();
    let done =
        browser.args(["-e", include_str!("dashboard.js")]).arg(file.path()).output().expect("node runs");
    let said = format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success() && said.contains("good"), "{said}");
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
