//! Three servers on one PostgreSQL and one Redis.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollgate_testkit::drill::upgrade;
use tollgate_testkit::postgres::Postgres;
use tollgate_testkit::redis::{Flavour, Server};
use tollgate_testkit::serving::Serving;

use super::http::{call, eventually};
use super::{BINARY, Operators, limit_of};

struct Fleet {
    operators: Operators,
    servers: Vec<Serving>,
    postgres: Postgres,
    _redis: Server,
}

fn fleet() -> Fleet {
    let postgres = Postgres::start().expect("PostgreSQL starts");
    postgres.psql("postgres", "CREATE DATABASE control").expect("it creates a database");
    let url = postgres.url("control");
    let migrated =
        std::process::Command::new(BINARY).args(["database", "migrate", "--database", &url]).output();
    assert!(migrated.expect("the binary runs").status.success());
    let redis = Server::start(Flavour::Redis70).expect("Redis starts");
    let operators = Operators::new();
    let place = &operators.place;
    let (rules, key, config) = (place.path("rules.yaml"), place.path("key"), place.path("tollgate.yaml"));
    let servers = ["a", "b", "c"].map(|name| {
        let journal = place.path(name);
        let args = ["--rules", &rules, "--hash-key-file", &key, "--config", &config, "--database", &url];
        let more = ["--journal", &journal, "--store", &redis.url(), "--threads", "1"];
        Serving::start(BINARY, &[&args[..], &more[..]].concat())
    });
    Fleet { operators, servers: servers.into(), postgres, _redis: redis }
}

/// Changes of the long form: `TOLLGATE_CONTROL_CHANGES=200`.
fn changes() -> usize {
    let wanted = std::env::var("TOLLGATE_CONTROL_CHANGES").ok().and_then(|text| text.parse().ok());
    wanted.unwrap_or(20)
}

#[test]
fn an_override_is_in_force_on_every_server_within_a_second() {
    let fleet = fleet();
    let Fleet { operators, servers, .. } = &fleet;
    let mut waits: Vec<Duration> = Vec::new();
    let mut etag = String::new();
    let acme = json!({ "action": "search", "tenant": "acme" });
    for number in 0..changes() {
        let limit = 20 + number as u64;
        let writer = &servers[number % servers.len()];
        let body = json!({ "id": "o-1", "rule": "search", "when": { "tenant": "acme" },
            "limit": { "fixed-window": format!("{limit}/h") }, "permanent": true, "reason": "spread" });
        let done = if number == 0 {
            operators.send(writer, "POST", "/v1/overrides", &body)
        } else {
            let body = json!({ "limit": { "fixed-window": format!("{limit}/h") }, "reason": "spread" });
            operators.change(writer, "PATCH", "/v1/overrides/o-1", &etag, &body)
        };
        let committed = Instant::now();
        assert!([200, 201].contains(&done.status), "{done:?}");
        etag = done.header("etag").expect("an ETag").to_owned();
        for server in servers {
            assert!(eventually(|| limit_of(server, &acme) == limit), "change {number}");
        }
        waits.push(committed.elapsed());
        if number > 0 {
            // The version of the call before is stale, on whichever server.
            let stale = operators.change(
                writer,
                "PATCH",
                "/v1/overrides/o-1",
                "\"1\"",
                &json!({ "reason": "x", "for": "1h" }),
            );
            assert_eq!(stale.status, 412, "{stale:?}");
        }
    }
    waits.sort_unstable();
    let p99 = waits[(waits.len() * 99).div_ceil(100) - 1];
    println!(
        "{} changes on three servers: p50 {:?}, p99 {p99:?}, max {:?}",
        waits.len(),
        waits[waits.len() / 2],
        waits[waits.len() - 1]
    );
    assert!(p99 < Duration::from_secs(1), "{waits:?}");
    let versions: Vec<Value> = servers
        .iter()
        .map(|server| {
            call(server.http, "GET", "/readyz", &[], &Value::Null).json["live_changes"]["version"].clone()
        })
        .collect();
    assert_eq!(versions, vec![json!(waits.len()); 3]);
}

/// Writers on all servers while the database crashes and starts again: what was acknowledged is there, once.
#[test]
fn a_database_that_restarts_loses_and_doubles_nothing() {
    let mut fleet = fleet();
    let Fleet { operators, servers, postgres, .. } = &mut fleet;
    let mut acknowledged = Vec::new();
    for round in 0..3 {
        let unsure: Vec<(String, u16)> = std::thread::scope(|scope| {
            let token = format!("Bearer {}", operators.change);
            let addresses: Vec<_> = servers.iter().map(|server| server.http).collect();
            let writers: Vec<_> = addresses
                .into_iter()
                .enumerate()
                .map(|(at, address)| {
                    let token = token.clone();
                    scope.spawn(move || {
                        let write = |number: usize| {
                            let id = format!("o-{round}-{at}-{number}");
                            let body = json!({ "id": id, "rule": "search", "when": { "tenant": id }, "scale": 2,
                                "permanent": true, "reason": "restart" });
                            let fields = [("authorization", token.as_str())];
                            (id, call(address, "POST", "/v1/overrides", &fields, &body).status)
                        };
                        (0..6).map(write).collect::<Vec<(String, u16)>>()
                    })
                })
                .collect();
            postgres.crash().expect("it ends");
            postgres.start_again().expect("it starts");
            writers.into_iter().flat_map(|writer| writer.join().expect("it ends")).collect()
        });
        for (id, status) in unsure {
            assert!([201, 503].contains(&status), "{id}: {status}");
            if status == 201 {
                acknowledged.push(id);
            }
        }
    }
    let committed = postgres.psql("control", "SELECT version FROM control").expect("a number");
    let version_of = |server: &Serving| operators.get(server, "/v1/overrides")["version"].to_string();
    assert!(eventually(|| version_of(&servers[0]) == committed), "{committed}");
    let list = operators.get(&servers[0], "/v1/overrides");
    let found: Vec<&str> = list["changes"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|change| change["id"].as_str())
        .collect();
    for id in &acknowledged {
        assert_eq!(found.iter().filter(|found| *found == id).count(), 1, "{id}");
    }
    assert!(!acknowledged.is_empty());
    let rows = postgres
        .psql("control", "SELECT target FROM audit WHERE action = 'override.add' ORDER BY 1")
        .expect("rows");
    let mut rows: Vec<&str> = rows.lines().collect();
    let all = rows.len();
    rows.dedup();
    assert_eq!((rows.len(), all), (found.len(), found.len()), "each change has one row");
    // Every server ends with the same changes.
    let version = list["version"].clone();
    for server in servers.iter() {
        assert!(eventually(|| operators.get(server, "/v1/overrides")["version"] == version));
    }
}

/// The short form of `cargo xtask chaos --only upgrade`. `TOLLGATE_PREVIOUS` names the binary of an earlier build.
#[test]
fn two_builds_side_by_side_decide_as_one() {
    let previous = std::env::var("TOLLGATE_PREVIOUS").unwrap_or_else(|_| BINARY.to_owned());
    let found = upgrade(&previous, BINARY, 4, 1).expect("the drill runs");
    println!("{found}");
    assert_eq!(found.wrong, Vec::<String>::new());
    assert!(found.answers > 200 && found.changes == 8, "{found}");
}
