//! One conformance suite on SQLite and on a real PostgreSQL.

mod cases;
mod changes;
mod retention;
mod rules;
mod story;
mod writer;

use cases::Fresh;
use tempfile::TempDir;
use tollgate_database::{Database, DatabaseUrl, Error};
use tollgate_testkit::postgres::Postgres;

struct SqliteFiles {
    folder: TempDir,
    count: u32,
}

impl Fresh for SqliteFiles {
    const HISTORIES: u32 = 60;

    fn url(&mut self) -> DatabaseUrl {
        self.count += 1;
        let path = self.folder.path().join(format!("{}.db", self.count));
        format!("sqlite:{}", path.display()).parse().expect("the URL is valid")
    }

    fn tamper(&mut self, url: &DatabaseUrl, sql: &str) {
        let path = url.to_string();
        let path = path.strip_prefix("sqlite:").expect("it is a file");
        rusqlite::Connection::open(path).and_then(|file| file.execute(sql, [])).expect("it changes rows");
    }
}

struct PostgresDatabases {
    server: Postgres,
    count: u32,
}

impl Fresh for PostgresDatabases {
    const HISTORIES: u32 = 20;

    fn url(&mut self) -> DatabaseUrl {
        self.count += 1;
        let name = format!("test{}", self.count);
        self.server.psql("postgres", &format!("CREATE DATABASE {name}")).expect("it creates a database");
        self.server.url(&name).parse().expect("the URL is valid")
    }

    fn tamper(&mut self, url: &DatabaseUrl, sql: &str) {
        let url = url.to_string();
        let (_, name) = url.rsplit_once('/').expect("the URL names a database");
        self.server.psql(name, sql).expect("it changes rows");
    }
}

fn files() -> SqliteFiles {
    SqliteFiles { folder: TempDir::new().expect("a folder"), count: 0 }
}

fn server() -> PostgresDatabases {
    PostgresDatabases { server: Postgres::start().expect("PostgreSQL starts"), count: 0 }
}

async fn suite<F: Fresh>(fresh: &mut F) {
    cases::migrations_apply_once(fresh).await;
    cases::a_batch_is_posted_exactly_once(fresh).await;
    cases::a_batch_that_fails_changes_nothing(fresh).await;
    cases::a_heartbeat_notices_a_database_that_was_set_back(fresh).await;
    cases::a_changed_row_breaks_the_chain(fresh).await;
    cases::changes_are_numbered_upwards_and_leave_posted_alone(fresh).await;
    cases::concurrent_changes_return_their_own_numbers(fresh).await;
    cases::a_balance_that_is_not_the_sum_of_its_entries_is_found(fresh).await;
    cases::totals_fold_a_second_into_one_row(fresh).await;
    writer::the_journal_of_a_killed_process_is_posted_once(fresh).await;
    writer::a_record_is_committed_when_its_wait_ends(fresh).await;
    writer::a_database_that_was_set_back_gets_the_journal_again(fresh).await;
    writer::reservations_expire_in_the_database(fresh).await;
    retention::what_is_dropped_leaves_balances_and_a_chain_that_can_be_verified(fresh).await;
    retention::entries_that_contradict_their_blocks_are_not_dropped(fresh).await;
    retention::a_tail_that_was_cut_off_is_found(fresh).await;
    retention::names_are_shown_with_their_accounts_and_the_newest_one_wins(fresh).await;
    cases::concurrent_writers_lose_nothing(fresh).await;
}

#[tokio::test]
async fn sqlite_passes_the_ledger_suite() {
    suite(&mut files()).await;
}

#[tokio::test]
async fn postgres_passes_the_ledger_suite() {
    suite(&mut server()).await;
}

async fn control_suite<F: Fresh>(fresh: &mut F) {
    changes::each_change_has_one_row_that_says_what_differs(fresh).await;
    changes::a_repeated_call_for_a_length_of_time_is_made_once(fresh).await;
    changes::a_change_without_its_row_is_not_made(fresh).await;
    changes::of_writers_with_the_same_version_one_wins(fresh).await;
    changes::ended_changes_are_dropped_after_a_week(fresh).await;
    changes::tampering_with_the_trail_is_found(fresh).await;
}

/// Random calls of the control plane. `TOLLGATE_CONTROL_CALLS` makes it more: 10,000 take about a minute.
fn random_calls(default: u32) -> u32 {
    let wanted = std::env::var("TOLLGATE_CONTROL_CALLS").ok().and_then(|text| text.parse().ok());
    wanted.unwrap_or(default)
}

#[tokio::test]
async fn sqlite_passes_the_control_suite() {
    let mut files = files();
    control_suite(&mut files).await;
    changes::random_calls_end_in_what_a_map_says(&mut files, random_calls(1_000)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_passes_the_control_suite() {
    let mut server = server();
    control_suite(&mut server).await;
    changes::random_calls_end_in_what_a_map_says(&mut server, random_calls(400)).await;
    changes::commits_are_announced(&server.url()).await;
}

#[tokio::test]
async fn sqlite_ends_in_the_truth_after_any_arrival_order() {
    cases::random_arrival_orders_end_in_the_truth(&mut files()).await;
}

#[tokio::test]
async fn postgres_ends_in_the_truth_after_any_arrival_order() {
    cases::random_arrival_orders_end_in_the_truth(&mut server()).await;
}

#[tokio::test]
async fn servers_do_not_migrate_postgres_and_refuse_commits_that_are_not_durable() {
    let mut server = server();
    let url = server.url();
    let error = Database::open(&url, cases::SETTINGS).await.expect_err("the schema is missing");
    assert!(matches!(error, Error::NotMigrated { applied: 0, .. }), "{error}");
    server.server.psql("postgres", "ALTER DATABASE test1 SET synchronous_commit = off").expect("it sets");
    let error = Database::connect(&url, cases::SETTINGS).await.expect_err("commits are not durable");
    assert!(matches!(error, Error::CommitNotDurable), "{error}");
}
