//! Names, copies, retention and adopted journals, by the commands that an operator runs.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};
use tollgate_testkit::postgres::Postgres;

use crate::client::Client;
use crate::{BINARY, KEY, Workplace, exists, stop};

const RULES: &str = "
version: 1
rules:
  - id: tokens
    per: tenant
    limit: { quota: 1000/month, zone: UTC }
    ledger: { name: company }
";

/// Charges one unit per id.
fn charge(workplace: &Workplace, more: &[&str], ids: &[&str]) {
    let server = workplace.serve(more);
    let mut client = Client::connect(server.http).expect("it connects");
    for id in ids {
        let attributes = json!({ "tenant": "t-1", "company": "=Acme, Ltd" });
        assert!(client.check(&attributes, 1, id).expect("it answers"));
    }
    stop(server);
}

fn used(workplace: &Workplace) -> Option<i64> {
    workplace.json(&["ledger", "usage"])["accounts"][0]["used"].as_i64()
}

#[test]
fn names_are_shown_by_usage_and_export_and_select_accounts() {
    let workplace = Workplace::new(RULES);
    charge(&workplace, &[], &["r-1", "r-2"]);
    let named = workplace.json(&["ledger", "usage", "--name", "=Acme, Ltd"]);
    assert_eq!(
        (&named["accounts"][0]["name"], &named["accounts"][0]["used"]),
        (&json!("=Acme, Ltd"), &json!(2))
    );
    assert_eq!(workplace.json(&["ledger", "usage", "--name", "other"])["accounts"], json!([]));
    let (_, text) = workplace.run(&["ledger", "usage"]);
    assert!(text.lines().nth(1).is_some_and(|line| line.ends_with("  =Acme, Ltd")), "{text}");
    let (code, csv) = workplace.run(&["ledger", "export", "--format", "csv"]);
    assert_eq!(code, 0, "{csv}");
    // A spreadsheet would run a text that begins with `=`.
    assert!(csv.contains(",\"'=Acme, Ltd\","), "{csv}");
}

#[test]
fn a_secret_cannot_be_the_name_of_an_account() {
    let workplace = Workplace::new(&RULES.replace("company", "api_key"));
    let (code, text) = workplace.run(&["lint", &workplace.path("rules.yaml")]);
    assert!(code == 1 && text.contains("is a secret and cannot be a name in the ledger"), "{code} {text}");
}

/// The copy is older than the database. The journal has what it misses.
#[test]
fn a_restored_copy_gets_from_the_journal_what_it_misses() {
    let workplace = Workplace::new(RULES);
    charge(&workplace, &[], &["r-1", "r-2"]);
    let copy = workplace.path("copy.db");
    workplace.json(&["database", "backup", &copy]);
    let running = workplace.serve(&[]);
    let mut client = Client::connect(running.http).expect("it connects");
    assert!(client.check(&json!({ "tenant": "t-1" }), 5, "r-3").expect("it answers"));
    let (code, text) = workplace.run(&["database", "restore", &copy]);
    assert!(code == 2 && text.contains("a server uses this database"), "{code} {text}");
    stop(running);
    assert_eq!(used(&workplace), Some(7));
    workplace.json(&["database", "restore", &copy]);
    assert_eq!(used(&workplace), Some(2), "the copy is in force");
    assert!(exists(&workplace.path("usage.db.before-restore")));
    stop(workplace.serve(&[]));
    assert_eq!(used(&workplace), Some(7), "the server has posted its journal again");
    assert_eq!(workplace.json(&["ledger", "verify"])["intact"], true);
    fs::write(&copy, "no database").expect("it writes");
    let (code, text) = workplace.run(&["database", "restore", &copy]);
    assert!(code == 2 && text.contains("SQLite cannot read the file"), "{code} {text}");
    assert_eq!(used(&workplace), Some(7), "nothing was replaced");
}

/// A server was killed, and its disk is attached to another machine.
#[test]
fn an_adopted_journal_is_posted_once() {
    let workplace = Workplace::new(RULES);
    workplace.json(&["database", "migrate"]);
    let gone = workplace.path("gone.db");
    let url = format!("sqlite:{gone}");
    charge(&workplace, &["--database", &url], &["r-1", "r-2", "r-3"]);
    let journal = format!("{gone}.journal");
    let adopted = workplace.json(&["ledger", "adopt", &journal]);
    assert_eq!(adopted, json!({ "writers": 1, "records": 3, "posted": 3 }));
    assert_eq!(used(&workplace), Some(3));
    let again = workplace.json(&["ledger", "adopt", &journal]);
    assert_eq!(again, json!({ "writers": 1, "records": 3, "posted": 0 }));
    assert_eq!(used(&workplace), Some(3));
    assert_eq!(workplace.json(&["ledger", "verify"])["intact"], true);
    let running = workplace.serve(&["--database", &url]);
    let (code, text) = workplace.run(&["ledger", "adopt", &journal]);
    assert!(code == 2 && text.contains("in use by another server"), "{code} {text}");
    stop(running);
    let (code, text) = workplace.run(&["ledger", "adopt", &workplace.path("nowhere")]);
    assert!(code == 2 && text.contains("no folder at"), "{code} {text}");
}

#[test]
fn what_was_exported_can_be_dropped_and_the_rest_still_verifies() {
    let workplace = Workplace::new(RULES);
    charge(&workplace, &[], &["r-1", "r-2"]);
    // As if it had been posted long ago.
    let file = rusqlite::Connection::open(workplace.path("usage.db")).expect("it opens");
    let heads = workplace.path("heads.json");
    fs::write(&heads, workplace.json(&["ledger", "verify"]).to_string()).expect("it writes");
    let now = jiff::Zoned::now().strftime("%Y-%m").to_string();
    let (_, kept) = workplace.run(&["ledger", "export", "--posted-before", "2020-01-01T00:00:00Z"]);
    assert_eq!(kept, "", "nothing is that old");
    let tried = workplace.json(&["database", "retain", "--drop-before", &now, "--dry-run"]);
    assert_eq!(tried["dropped"]["entries"], 0, "{tried}");
    file.execute("UPDATE entry SET posted_at = 1", []).expect("it changes rows");
    let (code, text) = workplace.run(&["database", "retain", "--drop-before", &now]);
    assert!(code == 3 && text.contains("the blocks of this time have 0 entries"), "{code} {text}");
    assert_eq!(workplace.run(&["ledger", "export"]).1.lines().count(), 2, "nothing was dropped");
    let (code, text) = workplace.run(&["database", "retain", "--drop-before", "2999-01"]);
    assert!(code == 2 && text.contains("a month to come"), "{code} {text}");
    let since = workplace.json(&["ledger", "verify", "--expect", &heads, "--since-expected"]);
    assert_eq!(since["intact"], true);
}

/// A server with a private journal on PostgreSQL, and the commands on it.
#[test]
fn postgres_is_migrated_copied_and_restored() {
    let postgres = Postgres::start().expect("PostgreSQL starts");
    postgres.psql("postgres", "CREATE DATABASE bills").expect("it creates a database");
    let workplace = Workplace::new(RULES);
    let url = postgres.url("bills");
    let run = |args: &[&str]| {
        let output = Command::new(BINARY)
            .args(args)
            .args(["--database", &url, "--format", "json"])
            .env("TOLLGATE_HASH_KEY", KEY)
            .output()
            .expect("the binary runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{args:?} {text} {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_str::<Value>(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    };
    let migrated = run(&["database", "migrate"]);
    let partitions = migrated["partitions"].as_array().map(Vec::len);
    assert_eq!(partitions, Some(5), "this month, three more, and the default one: {migrated}");
    let journal = workplace.path("journal");
    let more = ["--database", url.as_str(), "--journal", &journal];
    charge(&workplace, &more, &["r-1", "r-2"]);
    let copy = workplace.path("bills.dump");
    run(&["database", "backup", &copy]);
    charge(&workplace, &more, &["r-3"]);
    assert_eq!(run(&["ledger", "usage"])["accounts"][0]["used"], 3);
    run(&["database", "restore", &copy]);
    assert_eq!(run(&["ledger", "usage"])["accounts"][0]["used"], 2, "the copy is in force");
    stop(workplace.serve(&more));
    assert_eq!(run(&["ledger", "usage"])["accounts"][0]["used"], 3, "the journal has the rest");
    assert_eq!(run(&["ledger", "verify"])["intact"], true);
    let retained = run(&["database", "retain", "--months", "4"]);
    assert_eq!(retained["created"].as_array().map(Vec::len), Some(1), "{retained}");
}
