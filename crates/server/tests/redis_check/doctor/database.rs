//! Wrong databases: their schema, chains, sums and lag, and live changes that stay for long.

use rusqlite::Connection;
use tollgate_testkit::redis::{Flavour, Server};
use tollgate_testkit::serving::Serving;

use super::*;

const DAY_US: i64 = 86_400_000_000;

fn now_us() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    i64::try_from(now.as_micros()).expect("a number")
}

#[test]
fn wrong_databases_and_old_live_changes_are_found() {
    let server = Server::start(Flavour::Redis70).expect("a server starts");
    let folder = folder(&server);
    let path = |name: &str| folder.join(name).to_str().expect("text").to_owned();
    let database = format!("sqlite:{}", path("gate.db"));
    let check = |id: &str| {
        let arguments = ["--database", &database, "--only", id, "--only", "database-reachable"];
        let (_, findings) = examine(command(&folder, &arguments));
        let named = findings.iter().any(|finding| finding["id"] == id);
        of(&findings, if named { id } else { "database-reachable" })
    };
    assert_found(check("database-schema"), "skip", "a server creates the file");
    // A server creates the database, and its start is a row of the audit trail.
    let (rules, key) = (path("rules.yaml"), path("key"));
    let serving =
        Serving::start(BINARY, &["--rules", &rules, "--hash-key-file", &key, "--database", &database]);
    let connection = || Connection::open(folder.join("gate.db")).expect("a database");
    let run = |sql: &str| connection().execute_batch(sql).expect("the statement runs");
    let rows = || connection().query_row("SELECT count(*) FROM audit", [], |row| row.get::<_, i64>(0));
    wait_until("the start is in the audit trail", || rows().is_ok_and(|rows| rows > 0));
    drop(serving);
    for (id, part) in [
        ("database-reachable", "answers"),
        ("database-schema", "version"),
        ("database-lag", "no server lags"),
        ("database-chains", "unbroken"),
        ("database-drift", "agree"),
        ("changes-old", "0 live changes"),
    ] {
        assert_found(check(id), "pass", part);
    }

    let change = |id: &str, until: &str, days: i64| {
        let created = now_us() - days * DAY_US;
        run(&format!(
            "INSERT INTO live_change (id, kind, version, spec, until_at, reason, author, created_at, changed_at) VALUES ('{id}', 'override', 1, '{{}}', {until}, 'r', 'a', {created}, {created})"
        ));
    };
    change("new", "NULL", 6);
    change("ended", "1", 9);
    assert_found(check("changes-old"), "pass", "1 live changes, none older");
    change("old", "NULL", 8);
    assert_found(check("changes-old"), "warn", "such as override old");

    let writer = "x'00000000000000000000000000000007'";
    run(&format!(
        "INSERT INTO writer (id, name, started, last_seen, shipped_seq, clean_at, blocks, chain_head, state) VALUES ({writer}, 'api-7', 0, {}, 0, 0, 0, zeroblob(32), 'open')",
        now_us() - 600_000_000
    ));
    assert_found(check("database-lag"), "warn", "api-7");
    run("UPDATE writer SET state = 'closed'");
    assert_found(check("database-lag"), "pass", "no server lags");

    run(&format!(
        "INSERT INTO balance (rule, subject, period, ends, allowance, allowance_at, extra, extra_no, granted, available, pending, posted) VALUES ('a', {writer}, 0, 1, 10, 0, 0, 0, 10, 4, 0, 6)"
    ));
    assert_found(check("database-drift"), "fail", "1 accounts");

    run("UPDATE audit SET actor = 'somebody else' WHERE seq = 1");
    assert_found(check("database-chains"), "fail", "row 1 was changed");

    run("UPDATE schema_version SET version = version - 1");
    assert_found(check("database-schema"), "fail", "this program needs");
    run("UPDATE schema_version SET version = 99");
    assert_found(check("database-schema"), "fail", "version 99");
    run("DROP TABLE schema_version");
    std::fs::write(folder.join("gate.db"), "this is no database").expect("a file");
    assert_found(check("database-schema"), "fail", "");
}
