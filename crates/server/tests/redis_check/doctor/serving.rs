//! Servers: what they log, report and note.

use tollgate_testkit::redis::{Flavour, Server, Value as RedisValue};
use tollgate_testkit::serving::Serving;

use super::*;

/// A server on this store.
fn serve(folder: &Path, url: &str) -> Serving {
    let path = |name: &str| folder.join(name).to_str().expect("text").to_owned();
    let (rules, key) = (path("rules.yaml"), path("key"));
    Serving::start(BINARY, &["--rules", &rules, "--store", url, "--hash-key-file", &key])
}

/// What `GET /v1/doctor` answers after the first examination.
fn report(serving: &Serving) -> Value {
    let mut report = Value::Null;
    wait_until("the server examines itself", || {
        let answer = get(&format!("http://{}/v1/doctor", serving.http));
        report = serde_json::from_str(&answer).expect("JSON");
        !report["at_ms"].is_null()
    });
    report
}

fn get(url: &str) -> String {
    let output = Command::new("curl").args(["-s", url]).output().expect("curl runs");
    String::from_utf8(output.stdout).expect("text")
}

fn doctor_of(servers: &[&Serving]) -> (Option<i32>, Vec<Value>) {
    let mut command = Command::new(BINARY);
    command.arg("doctor");
    for server in servers {
        command.args(["--server", &format!("http://{}", server.http)]);
    }
    clear(&mut command);
    examine(command)
}

#[test]
fn a_server_reports_its_findings_and_warns_of_them() {
    let server = Server::builder(Flavour::Redis70)
        .arguments(["--maxmemory", "256mb", "--maxmemory-policy", "allkeys-lru"])
        .start()
        .expect("a server starts");
    let (folder, url) = (folder(&server), server.url());
    let mut admin = server.admin().expect("a connection");
    plant(&mut admin, &["SET", &format!("{NAMESPACE}:{{{SUBJECT}}}:a:{SUBJECT}"), "state"]);
    let serving = serve(&folder, &url);
    let early: Value =
        serde_json::from_str(&get(&format!("http://{}/v1/doctor", serving.http))).expect("JSON");
    assert!(early["findings"].is_array() && early["memory"].is_array(), "{early}");
    let logged = loop {
        let logged = serving.wait_for("doctor");
        if logged["check"] == "keys-without-ttl" {
            break logged;
        }
    };
    assert_eq!((&logged["level"], &logged["status"]), (&"WARN".into(), &"fail".into()), "{logged}");
    assert!(logged["fix"].as_str().is_some_and(|fix| fix.contains("UNLINK")), "{logged}");

    let first = report(&serving);
    assert_eq!(first["status"], "fail");
    assert_eq!((&first["keys"]["without_ttl"], &first["keys"]["sample"]), (&1.into(), &false.into()));
    let of_rule =
        first["keys"]["by_rule"].as_array().expect("a list").iter().find(|rule| rule["rule"] == "a");
    let of_rule = of_rule.expect("the rule has a key");
    assert!(of_rule["keys"] == 1 && of_rule["bytes"].as_u64() > Some(50), "{of_rule}");
    assert!(first["keys"]["bytes"].as_u64() >= of_rule["bytes"].as_u64(), "{first}");
    assert!(first["hot_keys"].is_array(), "{first}");
    let memory = &first["memory"][0];
    assert_eq!((&memory["policy"], &memory["max_bytes"]), (&"allkeys-lru".into(), &(256 << 20).into()));

    let metrics = get(&format!("http://{}/metrics", serving.http));
    assert!(metrics.contains("\nrate_limit_store_keys_without_ttl 1\n"), "{metrics}");
    assert!(metrics.contains("rate_limit_store_keys{rule=\"a\"} 1\n"), "{metrics}");

    // A second server does not scan, and knows what the first one found.
    let second = serve(&folder, &url);
    let shared = report(&second);
    assert_eq!(shared["keys"], first["keys"]);
    let findings = shared["findings"].as_array().expect("a list");
    assert_found(of(findings, "keys-without-ttl"), "fail", "1 never expire");
    let metrics = get(&format!("http://{}/metrics", second.http));
    assert!(
        !metrics.contains("\nrate_limit_store_keys_without_ttl "),
        "only the server that scanned reports keys"
    );

    let (code, findings) = doctor_of(&[&serving]);
    assert_eq!(code, Some(1), "{findings:?}");
    assert_found(of(&findings, "store-policy"), "fail", "allkeys-lru");
    let (code, findings) = doctor_of(&[&serving, &second]);
    let of_policy = findings.iter().filter(|finding| finding["id"] == "store-policy");
    assert_eq!((code, of_policy.count()), (Some(1), 2), "{findings:?}");
}

#[test]
fn rules_that_no_request_matched_for_a_week_are_found_across_restarts() {
    let server = Server::start(Flavour::Redis70).expect("a server starts");
    let (folder, url) = (folder(&server), server.url());
    let rules = "version: 1\nrules:\n  - { id: used, per: user, limit: { fixed-window: 30/h } }\n  - { id: dead, match: { action: never }, per: user, limit: { fixed-window: 3/h } }\n";
    std::fs::write(folder.join("rules.yaml"), rules).expect("a file");
    assert_found(check(&folder, &url, "rules-unmatched"), "skip", "no server has noted");
    let key = format!("{NAMESPACE}:{{doctor}}:@rule-use");
    let mut admin = server.admin().expect("a connection");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    let today = now.as_secs() / 86_400;
    let noted = format!("used {0} {1} {0}\ndead {0} {1} 0\n", today - 9, today - 1);
    plant(&mut admin, &["SET", &key, &noted, "PX", "3600000"]);
    assert_found(check(&folder, &url, "rules-unmatched"), "warn", "2 rules have matched no request");
    // A request matches one of them. The server notes it when it examines itself, which may be before the request.
    wait_until("a server notes the match", || {
        let serving = serve(&folder, &url);
        let body = ["-d", r#"{"attributes":{"user":"u"}}"#, "-H", "content-type: application/json"];
        let url = format!("http://{}/v1/check", serving.http);
        let sent = Command::new("curl").args(["-s", &url]).args(body).output().expect("curl runs");
        assert!(sent.status.success());
        report(&serving);
        let noted = admin.command(&[b"GET", key.as_bytes()]).expect("it answers");
        let noted = match noted {
            RedisValue::Bulk(noted) => String::from_utf8(noted).expect("text"),
            other => panic!("{other:?}"),
        };
        noted.ends_with(&format!("used {} {today} {today}\n", today - 9))
    });
    assert_found(
        check(&folder, &url, "rules-unmatched"),
        "warn",
        "1 rules have matched no request for a week, such as dead",
    );
}
