//! The commands on the database of a server.

use serde_json::{Value, json};

use crate::client::Client;
use crate::{Workplace, exists, stop};

const RULES: &str = "
version: 1
rules:
  - id: tokens
    per: tenant
    limit: { quota: 100/month, zone: UTC }
    ledger: {}
";

fn charge(workplace: &Workplace, more: &[&str]) {
    let server = workplace.serve(more);
    let mut client = Client::connect(server.http).expect("it connects");
    for (number, cost) in [10, 20, 30].into_iter().enumerate() {
        let allowed = client.check(&json!({ "tenant": "acme" }), cost, &format!("r-{number}"));
        assert!(allowed.expect("it answers"));
    }
    let refused = client.check(&json!({ "tenant": "acme" }), 50, "r-9").expect("it answers");
    assert!(!refused);
    stop(server);
}

fn account(workplace: &Workplace) -> Value {
    let usage = workplace.json(&["ledger", "usage", "--rule", "tokens"]);
    assert_eq!(usage["accounts"].as_array().map(Vec::len), Some(1), "{usage}");
    usage["accounts"][0].clone()
}

#[test]
fn usage_export_and_verify_show_what_the_server_admitted() {
    let workplace = Workplace::new(RULES);
    charge(&workplace, &[]);
    let found = account(&workplace);
    let numbers = ["granted", "used", "held", "available"].map(|name| found[name].as_i64());
    assert_eq!(numbers, [100, 60, 0, 40].map(Some));
    let (code, lines) = workplace.run(&["ledger", "export"]);
    assert_eq!(code, 0, "{lines}");
    let entries: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).expect("a JSON line")).collect();
    let posted: Vec<_> = entries.iter().map(|entry| entry["posted"].as_i64()).collect();
    assert_eq!(posted, [10, 20, 30].map(Some));
    assert!(entries.iter().all(|entry| entry["kind"] == "use" && entry["subject"] == found["subject"]));
    let (code, csv) = workplace.run(&["ledger", "export", "--format", "csv", "--rule", "tokens"]);
    assert_eq!((code, csv.lines().count()), (0, 4), "{csv}");
    let none = workplace.json(&["ledger", "usage", "--rule", "other"]);
    assert_eq!(none["accounts"], json!([]));
    let verified = workplace.json(&["ledger", "verify"]);
    assert_eq!(verified["intact"], true);
    let (code, text) = workplace.run(&["ledger", "verify"]);
    assert!(code == 0 && text.ends_with("the ledger is intact\n"), "{text}");
}

#[test]
fn verify_finds_a_changed_row_and_a_rewritten_history() {
    let workplace = Workplace::new(RULES);
    charge(&workplace, &[]);
    let heads = workplace.path("heads.json");
    std::fs::write(&heads, workplace.json(&["ledger", "verify"]).to_string()).expect("it writes");
    assert_eq!(workplace.json(&["ledger", "verify", "--expect", &heads])["intact"], true);
    let file = rusqlite::Connection::open(workplace.path("usage.db")).expect("it opens");
    file.execute("UPDATE entry SET d_posted = 1 WHERE d_posted = 10", []).expect("it changes a row");
    let (code, text) = workplace.run(&["ledger", "verify"]);
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("BROKEN at block 1") && text.contains("the entries 51 and 0"), "{text}");
    // An administrator who deletes everything leaves an intact, empty ledger. Only the kept heads show it.
    for table in ["entry", "block", "balance", "request", "writer"] {
        file.execute(&format!("DELETE FROM {table}"), []).expect("it deletes");
    }
    assert_eq!(workplace.json(&["ledger", "verify"])["intact"], true);
    let (code, text) = workplace.run(&["ledger", "verify", "--expect", &heads]);
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("is not the one that was expected"), "{text}");
}

#[test]
fn grants_and_corrections_change_the_allowance_and_not_the_use() {
    let workplace = Workplace::new(RULES);
    charge(&workplace, &[]);
    let rules = workplace.path("rules.yaml");
    let change = |kind: &str, units: &str, who: &str| {
        let common = ["--rules", &rules, "--rule", "tokens", "--reason", "ticket 4711", "--actor", "ada"];
        workplace
            .run(&[&["ledger", kind, "--units", units, "--format", "json"], &common[..], &[who]].concat())
    };
    let (code, text) = change("grant", "50", "tenant=acme");
    assert_eq!(code, 0, "{text}");
    let granted: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((granted["granted"].as_i64(), granted["used"].as_i64()), (Some(150), Some(60)));
    let (code, text) = change("correct", "-20", "tenant=acme");
    assert_eq!(code, 0, "{text}");
    let corrected: Value = serde_json::from_str(&text).expect("JSON");
    assert!(corrected["number"].as_i64() > granted["number"].as_i64());
    let found = account(&workplace);
    assert_eq!((found["granted"].as_i64(), found["used"].as_i64()), (Some(130), Some(60)));
    assert_eq!(change("grant", "-1", "tenant=acme").0, 2);
    assert_eq!(change("grant", "1", "user=acme").0, 1, "the rule finds no subject");
    let (_, csv) = workplace.run(&["ledger", "export", "--format", "csv"]);
    assert!(csv.contains("ticket 4711,ada"), "{csv}");
    assert_eq!(workplace.json(&["ledger", "verify"])["intact"], true);
}

#[test]
fn a_database_is_migrated_inspected_and_copied() {
    let workplace = Workplace::new(RULES);
    let (code, text) = workplace.run(&["database", "status"]);
    assert!(code == 2 && text.contains("no database at sqlite:"), "{code} {text}");
    assert!(!exists(&workplace.path("usage.db")), "asking creates nothing");
    assert_eq!(workplace.json(&["database", "migrate"])["current"], true);
    charge(&workplace, &[]);
    let status = workplace.json(&["database", "status"]);
    assert_eq!((status["current"].as_bool(), status["writers"].as_i64()), (Some(true), Some(1)));
    let copy = workplace.path("copy.db");
    workplace.json(&["database", "backup", &copy]);
    let url = format!("sqlite:{copy}");
    let usage = workplace.json(&["ledger", "usage", "--database", &url]);
    assert_eq!(usage["accounts"][0]["used"], 60);
    let (code, text) = workplace.run(&["database", "backup", &copy]);
    assert_eq!(code, 2, "a file that exists is not overwritten: {text}");
}

#[test]
fn a_server_with_recorded_rules_needs_a_database_and_a_hash_key() {
    let workplace = Workplace::new(RULES);
    let rules = workplace.path("rules.yaml");
    let (code, text) =
        workplace.run(&["serve", "--rules", &rules, "--database", "mysql://h", "--http", "off"]);
    assert!(code == 2 && text.contains("unknown database URL"), "{code} {text}");
    let mut command = std::process::Command::new(crate::BINARY);
    let output =
        command.args(["serve", "--rules", &rules, "--http", "127.0.0.1:0"]).output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && text.contains("rule `tokens` must be recorded"), "{text}");
    let mut command = std::process::Command::new(crate::BINARY);
    let output = command.args(["serve", "--rules", &rules, "--database", &workplace.database()]).output();
    let text = String::from_utf8_lossy(&output.expect("it runs").stderr).into_owned();
    assert!(text.contains("missing hash key"), "{text}");
}

#[test]
fn readiness_and_metrics_show_the_ledger() {
    let workplace = Workplace::new(RULES);
    let server = workplace.serve(&[]);
    let mut client = Client::connect(server.http).expect("it connects");
    assert!(client.check(&json!({ "tenant": "acme" }), 1, "r-1").expect("it answers"));
    let get = |path: &str| {
        let url = format!("http://{}{path}", server.http);
        let output = std::process::Command::new("curl").args(["--silent", "--max-time", "20", &url]).output();
        String::from_utf8(output.expect("curl runs").stdout).expect("text")
    };
    let ready: Value = serde_json::from_str(&get("/readyz")).expect("JSON");
    assert_eq!(ready["ledger"]["up"], true, "{ready}");
    let metrics = get("/metrics");
    assert!(metrics.contains("rate_limit_ledger_entries_total 1\n"), "{metrics}");
    stop(server);
}
