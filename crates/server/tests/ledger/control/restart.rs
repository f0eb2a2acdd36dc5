//! Restarts, and a database that is away or was set back.

use std::fs;

use serde_json::json;
use tollgate_testkit::postgres::Postgres;
use tollgate_testkit::serving::Serving;

use super::http::{call, eventually};
use super::{BINARY, Operators, limit_of};
use crate::stop;

fn postgres() -> (Postgres, String) {
    let postgres = Postgres::start().expect("PostgreSQL starts");
    postgres.psql("postgres", "CREATE DATABASE control").expect("it creates a database");
    let url = postgres.url("control");
    let migrated =
        std::process::Command::new(BINARY).args(["database", "migrate", "--database", &url]).output();
    let migrated = migrated.expect("the binary runs");
    assert!(migrated.status.success(), "{migrated:?}");
    (postgres, url)
}

fn serve(operators: &Operators, url: &str) -> Serving {
    let place = &operators.place;
    let (rules, key, config) = (place.path("rules.yaml"), place.path("key"), place.path("tollgate.yaml"));
    let journal = place.path("journal");
    Serving::start(
        BINARY,
        &[
            "--rules",
            &rules,
            "--hash-key-file",
            &key,
            "--config",
            &config,
            "--database",
            url,
            "--journal",
            &journal,
        ],
    )
}

/// The copy on the disk is in force after a restart while the database is away, and what was written meanwhile is applied
/// when it is back.
#[test]
fn live_changes_survive_a_restart_while_the_database_is_away() {
    let (mut postgres, url) = postgres();
    let operators = Operators::new();
    let server = serve(&operators, &url);
    let acme = json!({ "action": "search", "tenant": "acme" });
    let body = json!({ "rule": "search", "when": { "tenant": "acme" }, "scale": 2, "permanent": true, "reason": "launch" });
    assert_eq!(operators.send(&server, "POST", "/v1/overrides", &body).status, 201);
    stop(server);
    postgres.crash().expect("it ends");
    let server = serve(&operators, &url);
    assert_eq!(limit_of(&server, &acme), 20);
    let ready = call(server.http, "GET", "/readyz", &[], &json!(null));
    assert_eq!((ready.status, &ready.json["live_changes"]["from"]), (200, &json!("cache")), "{ready:?}");
    let refused = operators.send(&server, "POST", "/v1/overrides", &body);
    assert_eq!((refused.status, &refused.json["code"]), (503, &json!("database-unavailable")), "{refused:?}");
    postgres.start_again().expect("it starts");
    let from = || call(server.http, "GET", "/readyz", &[], &json!(null)).json["live_changes"]["from"].clone();
    assert!(eventually(|| from() == json!("database")));
    assert_eq!(operators.send(&server, "POST", "/v1/overrides", &body).status, 201);
    assert_eq!(operators.get(&server, "/v1/overrides")["changes"].as_array().map(Vec::len), Some(2));
}

/// A server that knows neither database nor copy says so.
#[test]
fn a_server_that_knows_no_live_changes_is_not_ready() {
    let (mut postgres, url) = postgres();
    postgres.crash().expect("it ends");
    let operators = Operators::new();
    let server = serve(&operators, &url);
    let ready = call(server.http, "GET", "/readyz", &[], &json!(null));
    assert_eq!((ready.status, &ready.json["live_changes"]["from"]), (503, &json!("unknown")), "{ready:?}");
    postgres.start_again().expect("it starts");
    assert!(eventually(|| call(server.http, "GET", "/readyz", &[], &json!(null)).status == 200));
}

/// Yesterday's database: the server reports the live changes that it lacks.
#[test]
fn live_changes_that_a_restored_database_lacks_are_reported() {
    let operators = Operators::new();
    let server = operators.serve(&[]);
    let body = |tenant: &str| json!({ "rule": "search", "when": { "tenant": tenant }, "scale": 2, "permanent": true, "reason": "launch" });
    assert_eq!(operators.send(&server, "POST", "/v1/overrides", &body("one")).status, 201);
    let (code, text) = operators.place.run(&["database", "backup", &operators.place.path("backup.db")]);
    assert_eq!(code, 0, "{text}");
    let mut second = body("two");
    second["id"] = json!("o-lost");
    assert_eq!(operators.send(&server, "POST", "/v1/overrides", &second).status, 201);
    stop(server);
    for name in ["usage.db", "usage.db-wal", "usage.db-shm"] {
        drop(fs::remove_file(operators.place.path(name)));
    }
    fs::copy(operators.place.path("backup.db"), operators.place.path("usage.db")).expect("it copies");
    let server = operators.serve(&[]);
    let reported = server.text();
    let line = reported.lines().find(|line| line.contains("changes_set_back")).expect("a log line");
    assert!(line.contains("o-lost"), "{line}");
    let row = || {
        let rows = operators.get(&server, "/v1/audit")["rows"].clone();
        rows.as_array().expect("rows").iter().find(|row| row["action"] == "changes.set_back").cloned()
    };
    assert!(eventually(|| row().is_some_and(|row| row["detail"].to_string().contains("o-lost"))));
    assert_eq!(limit_of(&server, &json!({ "action": "search", "tenant": "two" })), 10);
    assert_eq!(limit_of(&server, &json!({ "action": "search", "tenant": "one" })), 20);
}
