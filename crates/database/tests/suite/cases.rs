//! The conformance suite: what the ledger promises on every database.

use std::collections::BTreeMap;

use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use tollgate_database::ledger::{Account, Change, Detail, Event, Id, Kind, Record, Request, Settings};
use tollgate_database::{Batch, Database, DatabaseUrl, Error};
use tollgate_testkit::random::Random;

use crate::story::{self, Truth, account, record, stories};

pub(crate) const SETTINGS: Settings = Settings { horizon_us: 60_000_000 };
const WRITERS: [Id; 3] = [Id([1; 16]), Id([2; 16]), Id([3; 16])];
const NOW_US: i64 = 7_000_000;

/// Creates empty databases of one kind.
pub(crate) trait Fresh {
    /// Returns the URL of a new, empty database.
    fn url(&mut self) -> DatabaseUrl;
    /// Changes rows behind the ledger's back.
    fn tamper(&mut self, url: &DatabaseUrl, sql: &str);
    /// Number of random histories that the kind can afford.
    const HISTORIES: u32;
}

async fn opened(url: &DatabaseUrl) -> Database {
    let database = Database::connect(url, SETTINGS).await.expect("it connects");
    database.migrate().await.expect("it migrates");
    for writer in WRITERS {
        database.register(writer, "test", NOW_US).await.expect("it registers");
    }
    database
}

fn batch(writer: Id, after: i64, records: Vec<Record>) -> Batch {
    Batch { writer, after, records, now_us: NOW_US }
}

fn used(cost: i64) -> Record {
    record(account(0), Event::Use { cost })
}

async fn totals(database: &Database, account: &Account) -> Truth {
    let balances = database.balances(vec![account.clone()]).await.expect("it reads");
    let balance = balances.get(account).cloned().unwrap_or_default();
    // Compares the numbers that are stored, not those that `Balance` computes from each other.
    assert_eq!(database.unbalanced().await.expect("it reads"), []);
    Truth { posted: balance.posted, pending: balance.pending }
}

async fn posted(database: &Database) -> i64 {
    totals(database, &account(0)).await.posted
}

pub(crate) async fn migrations_apply_once<F: Fresh>(fresh: &mut F) {
    let url = fresh.url();
    let database = Database::connect(&url, SETTINGS).await.expect("it connects");
    assert_eq!(database.status().await.expect("it reads").applied, 0);
    for _ in 0..2 {
        assert!(database.migrate().await.expect("it migrates").is_current());
    }
    drop(Database::open(&url, SETTINGS).await.expect("a current schema opens"));
    fresh.tamper(&url, "INSERT INTO schema_version (version) VALUES (99)");
    let error = Database::open(&url, SETTINGS).await.expect_err("the schema is newer");
    assert!(matches!(error, Error::TooNew { applied: 99, .. }), "{error}");
}

pub(crate) async fn a_batch_is_posted_exactly_once<F: Fresh>(fresh: &mut F) {
    let database = opened(&fresh.url()).await;
    let first = batch(WRITERS[0], 0, vec![used(3), used(4)]);
    assert_eq!(database.post(first.clone()).await.expect("it posts").shipped_seq, 2);
    let again = database.post(first).await.expect_err("the cursor has moved");
    assert!(matches!(again, Error::CursorMoved { expected: 0, found: Some(2) }), "{again}");
    let ahead = database.post(batch(WRITERS[0], 5, vec![used(9)])).await.expect_err("there is a gap");
    assert!(matches!(ahead, Error::CursorMoved { expected: 5, found: Some(2) }), "{ahead}");
    let unknown = database.post(batch(Id([9; 16]), 0, vec![used(9)])).await.expect_err("not registered");
    assert!(matches!(unknown, Error::CursorMoved { found: None, .. }), "{unknown}");
    assert_eq!(posted(&database).await, 7);
}

pub(crate) async fn a_batch_that_fails_changes_nothing<F: Fresh>(fresh: &mut F) {
    let database = opened(&fresh.url()).await;
    let error = database.post(batch(WRITERS[0], 0, vec![used(i64::MAX), used(1)])).await;
    assert!(matches!(error, Err(Error::Overflow { .. })), "{error:?}");
    assert_eq!(database.cursor(WRITERS[0]).await.expect("it reads"), Some(0));
    assert_eq!(posted(&database).await, 0);
}

pub(crate) async fn a_heartbeat_notices_a_database_that_was_set_back<F: Fresh>(fresh: &mut F) {
    let url = fresh.url();
    let database = opened(&url).await;
    database.post(batch(WRITERS[0], 0, vec![used(3)])).await.expect("it posts");
    database.heartbeat(WRITERS[0], 1, 5, 6).await.expect("the cursor is right");
    fresh.tamper(&url, "UPDATE writer SET shipped_seq = 0");
    let error = database.heartbeat(WRITERS[0], 1, 5, 6).await.expect_err("it was set back");
    assert!(matches!(error, Error::CursorMoved { expected: 1, found: Some(0) }), "{error}");
}

pub(crate) async fn a_changed_row_breaks_the_chain<F: Fresh>(fresh: &mut F) {
    let url = fresh.url();
    let database = opened(&url).await;
    for after in 0..3 {
        database.post(batch(WRITERS[0], after, vec![used(3)])).await.expect("it posts");
    }
    assert_eq!(database.first_broken_block(WRITERS[0]).await.expect("it reads"), None);
    fresh.tamper(&url, "UPDATE entry SET d_posted = 2 WHERE seq = 2");
    assert_eq!(database.first_broken_block(WRITERS[0]).await.expect("it reads"), Some(2));
}

pub(crate) async fn changes_are_numbered_upwards_and_leave_posted_alone<F: Fresh>(fresh: &mut F) {
    let database = opened(&fresh.url()).await;
    database.post(batch(WRITERS[0], 0, vec![used(30)])).await.expect("it posts");
    let change = |units| Change { units, actor: "ada".to_owned(), cause: "goodwill".to_owned() };
    let first = database.change(&used(0), Kind::Grant, change(50), 1_000).await.expect("it grants");
    let same_time = database.change(&used(0), Kind::Correct, change(-20), 1_000).await.expect("it corrects");
    let later = database.change(&used(0), Kind::Correct, change(0), 9_000).await.expect("it corrects");
    assert_eq!([first, same_time, later], [1_000, 1_001, 9_000]);
    let balance = database.balances(vec![account(0)]).await.expect("it reads").remove(&account(0));
    let balance = balance.expect("it has a balance");
    assert_eq!((balance.granted(), balance.posted, balance.available()), (130, 30, 100));
    // Each change is in the audit trail, in its own transaction.
    let rows = database.audit_page(0, 10).await.expect("it reads");
    let found: Vec<(&str, &str, &str)> =
        rows.iter().map(|row| (&*row.event.action, &*row.event.actor, &*row.event.reason)).collect();
    let of = |action: &'static str| (action, "ada", "goodwill");
    assert_eq!(found, [of("ledger.grant"), of("ledger.correct"), of("ledger.correct")]);
    assert!(rows[0].event.detail.contains("\"units\":50"), "{:?}", rows[0]);
    database.verify_audit(None).await.expect("it reads").expect("the trail is intact");
}

/// The number is the one of the own change, also when many change the same account at once.
pub(crate) async fn concurrent_changes_return_their_own_numbers<F: Fresh>(fresh: &mut F) {
    let database = opened(&fresh.url()).await;
    let grant = async |units: i64| {
        let change = Change { units, actor: "ada".to_owned(), cause: units.to_string() };
        (units, database.change(&used(0), Kind::Grant, change, 1_000).await.expect("it grants"))
    };
    let mut numbers = futures_util::future::join_all((1..=12).map(grant)).await;
    numbers.sort_by_key(|&(_, number)| number);
    let by_number: Vec<i64> = numbers.iter().map(|&(_, number)| number).collect();
    assert_eq!(by_number, (1_000..1_012).collect::<Vec<_>>());
    let entries = database.entries(Id([0; 16])).await.expect("it reads");
    let in_order: Vec<i64> = entries.iter().map(|entry| entry.d_granted).collect();
    assert_eq!(in_order, numbers.iter().map(|&(units, _)| units).collect::<Vec<_>>());
}

pub(crate) async fn a_balance_that_is_not_the_sum_of_its_entries_is_found<F: Fresh>(fresh: &mut F) {
    let tampered = [
        "UPDATE balance SET posted = posted + 1, available = available - 1",
        "UPDATE balance SET pending = pending + 1, available = available - 1",
        "UPDATE balance SET extra = extra + 1, granted = granted + 1, available = available + 1",
        "DELETE FROM entry WHERE seq = 2",
    ];
    for sql in tampered {
        let url = fresh.url();
        let database = opened(&url).await;
        database.post(batch(WRITERS[0], 0, vec![used(3), used(4)])).await.expect("it posts");
        assert_eq!(database.unbalanced().await.expect("it reads"), []);
        fresh.tamper(&url, sql);
        let found = database.unbalanced().await.expect("it reads");
        assert_eq!(found.len(), 1, "{sql}");
        assert_eq!(found[0].account, account(0), "{sql}");
    }
}

pub(crate) async fn totals_fold_a_second_into_one_row<F: Fresh>(fresh: &mut F) {
    let database = opened(&fresh.url()).await;
    let folded = |cost, at_us| Record { detail: Detail::Totals, at_us, ..used(cost) };
    let request = Some(Request { id: Id([7; 16]), nonce: Id([8; 16]), content: 1 });
    let repeated = Record { request, ..folded(5, 2_000_010) };
    let records = vec![folded(3, 2_000_000), repeated.clone(), repeated, folded(4, 3_000_000)];
    let receipt = database.post(batch(WRITERS[0], 0, records)).await.expect("it posts");
    assert_eq!(receipt.duplicates, 1);
    let entries = database.entries(WRITERS[0]).await.expect("it reads");
    let sums: Vec<i64> = entries.iter().map(|entry| entry.d_posted).collect();
    assert_eq!(sums, [8, 4]);
    assert_eq!(posted(&database).await, 12);
    assert_eq!(database.first_broken_block(WRITERS[0]).await.expect("it reads"), None);
}

/// Several servers post the same accounts, reservations and request ids at once.
pub(crate) async fn concurrent_writers_lose_nothing<F: Fresh>(fresh: &mut F) {
    let database = opened(&fresh.url()).await;
    const ROUNDS: i64 = 20;
    let ship = async |writer: Id| {
        for after in 0..ROUNDS {
            let id = Id([after as u8; 16]);
            let request = Some(Request { id, nonce: id, content: 0 });
            // Writers that disagree about the period lock different balances, but share the request.
            let mut account = account(0);
            account.period_us += i64::from(writer.0[0]);
            let repeated = Record { request, ..record(account, Event::Use { cost: 1 }) };
            let records = vec![repeated, used(1), record(self::account(1), Event::Use { cost: 1 })];
            database.post(batch(writer, after * 3, records)).await.expect("it posts");
        }
    };
    futures_util::future::join_all(WRITERS.map(ship)).await;
    assert_eq!(posted(&database).await, ROUNDS * 3);
    let mut repeated = 0;
    for writer in WRITERS {
        let mut account = account(0);
        account.period_us += i64::from(writer.0[0]);
        repeated += totals(&database, &account).await.posted;
    }
    assert_eq!(repeated, ROUNDS);
}

pub(crate) async fn random_arrival_orders_end_in_the_truth<F: Fresh>(fresh: &mut F) {
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    for seed in 0..F::HISTORIES {
        use proptest::strategy::{Strategy, ValueTree};
        let told = stories().new_tree(&mut runner).expect("it generates").current();
        let database = opened(&fresh.url()).await;
        replay(&database, &told, u64::from(seed)).await;
    }
}

/// Spreads the records over the writers, and posts batches of random lengths in a random order, some of them twice.
async fn replay(database: &Database, told: &[(u8, story::Story)], seed: u64) {
    let mut random = Random::new(seed);
    let mut below = |end: usize| (random.bits() % end as u64) as usize;
    let mut queues: BTreeMap<Id, Vec<story::Step>> = WRITERS.map(|writer| (writer, Vec::new())).into();
    for (number, (owner, story)) in told.iter().enumerate() {
        for step in story.steps(number, &account(*owner)) {
            let queue = queues.get_mut(&WRITERS[below(3)]).expect("every writer has a queue");
            queue.insert(below(queue.len() + 1), step);
        }
    }
    let mut logs: Vec<(Id, Vec<Record>, usize)> = Vec::new();
    for (writer, queue) in queues {
        let (mut log, mut voids) = (Vec::new(), Vec::new());
        for (step, seq) in queue.into_iter().zip(1..) {
            log.push(step.record);
            voids.extend(step.void.map(|void| Record { event: Event::Void { seq }, ..void }));
        }
        log.extend(voids);
        logs.push((writer, log, 0));
    }
    while !logs.iter().all(|(_, log, shipped)| *shipped == log.len()) {
        let (writer, log, shipped) = &mut logs[below(3)];
        let len = 1 + below(4);
        let next = batch(*writer, *shipped as i64, log.iter().skip(*shipped).take(len).cloned().collect());
        if next.records.is_empty() {
            continue;
        }
        *shipped += next.records.len();
        database.post(next.clone()).await.unwrap_or_else(|error| panic!("{error}: {next:?}"));
        if below(4) == 0 {
            let again = database.post(next).await;
            assert!(matches!(again, Err(Error::CursorMoved { .. })), "{again:?}");
        }
    }
    let mut sums: BTreeMap<Account, Truth> = BTreeMap::new();
    for (writer, log, _) in &logs {
        let entries = database.entries(*writer).await.expect("it reads");
        let numbers: Vec<i64> = entries.iter().map(|entry| entry.seq).collect();
        assert_eq!(numbers, (1..=log.len() as i64).collect::<Vec<_>>(), "each entry once");
        assert_eq!(database.first_broken_block(*writer).await.expect("it reads"), None);
        for entry in entries {
            let sum = sums.entry(entry.account).or_default();
            sum.posted += entry.d_posted;
            sum.pending += entry.d_pending;
        }
    }
    for (account, expected) in story::truth(told) {
        assert_eq!(totals(database, &account).await, expected, "seed {seed}: {told:?}");
        assert_eq!(sums[&account], expected, "the entries add up to the balance");
    }
}
