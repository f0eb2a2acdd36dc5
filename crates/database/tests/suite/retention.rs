//! Old entries are dropped without breaking chains or balances, and names stay outside of the chain.

use std::sync::Arc;

use tollgate_database::ledger::{Account, Event, Id, Record};
use tollgate_database::{Batch, Database, Dropped, Error, Filter, Month};

use crate::cases::{Fresh, SETTINGS};
use crate::story::{account, record};

const WRITER: Id = Id([1; 16]);
const DAY_US: i64 = 86_400_000_000;
/// 2026-01-01T00:00:00Z.
const JANUARY_US: i64 = 1_767_225_600_000_000;
const FEBRUARY_US: i64 = JANUARY_US + 31 * DAY_US;
const MARCH_US: i64 = FEBRUARY_US + 28 * DAY_US;

fn january() -> Month {
    Month { year: 2026, month: 1, from_us: JANUARY_US, to_us: FEBRUARY_US }
}

fn february() -> Month {
    Month { year: 2026, month: 2, from_us: FEBRUARY_US, to_us: MARCH_US }
}

async fn opened<F: Fresh>(fresh: &mut F) -> (tollgate_database::DatabaseUrl, Database) {
    let url = fresh.url();
    let database = Database::connect(&url, SETTINGS).await.expect("it connects");
    database.migrate().await.expect("it migrates");
    database.register(WRITER, "test", JANUARY_US).await.expect("it registers");
    (url, database)
}

async fn post(database: &Database, after: i64, records: Vec<Record>, now_us: i64) {
    database.post(Batch { writer: WRITER, after, records, now_us }).await.expect("it posts");
}

fn used(cost: i64) -> Record {
    record(account(0), Event::Use { cost })
}

fn hold(byte: u8, until_us: i64) -> Record {
    record(account(0), Event::Reserve { token: Id([byte; 16]), cost: 10, until_us })
}

/// Three batches in January, one of them with a clock that was set back, and two in February.
async fn two_months(database: &Database) {
    post(database, 0, vec![used(1), used(2)], JANUARY_US + 10).await;
    post(database, 2, vec![hold(1, JANUARY_US + 99), hold(2, MARCH_US)], JANUARY_US + DAY_US).await;
    let token = Id([1; 16]);
    let settle = record(account(0), Event::Settle { token, actual: 4, until_us: JANUARY_US + 99 });
    post(database, 4, vec![settle], JANUARY_US).await;
    post(database, 5, vec![used(8)], FEBRUARY_US).await;
    post(database, 6, vec![used(16)], FEBRUARY_US + 1).await;
}

async fn assert_intact(database: &Database) {
    assert_eq!(database.unbalanced().await.expect("it reads"), []);
    assert_eq!(database.first_broken_block(WRITER).await.expect("it reads"), None);
    let balances = database.balances(vec![account(0)]).await.expect("it reads");
    let balance = &balances[&account(0)];
    assert_eq!((balance.posted, balance.pending), (1 + 2 + 4 + 8 + 16, 10));
}

pub(crate) async fn what_is_dropped_leaves_balances_and_a_chain_that_can_be_verified<F: Fresh>(
    fresh: &mut F,
) {
    for with_partitions in [false, true] {
        let (url, database) = opened(fresh).await;
        two_months(&database).await;
        let has_partitions = !database.partitions().await.expect("it reads").is_empty();
        if with_partitions {
            // Entries of these months are in the default partition, and are moved.
            for month in [january(), february()] {
                let created = database.create_partition(&month).await.expect("it creates");
                assert_eq!(created, has_partitions);
                assert!(!database.create_partition(&month).await.expect("it is there"));
            }
            assert_intact(&database).await;
        }
        let expected = Dropped { entries: 5, blocks: 3, requests: 0, reservations: 1 };
        assert_eq!(database.count_old(FEBRUARY_US).await.expect("it counts"), expected);
        assert_eq!(database.entries(WRITER).await.expect("it reads").len(), 7, "counting drops nothing");
        assert_eq!(database.drop_old(FEBRUARY_US).await.expect("it drops"), expected);
        assert_eq!(database.entries(WRITER).await.expect("it reads").len(), 2);
        assert_intact(&database).await;
        assert_eq!(database.drop_old(FEBRUARY_US).await.expect("it drops"), Dropped::default());
        let names = database.partitions().await.expect("it reads");
        let names: Vec<&str> = names.iter().map(|partition| partition.name.as_str()).collect();
        match (has_partitions, with_partitions) {
            (false, _) => assert_eq!(names, [""; 0]),
            (true, false) => assert_eq!(names, ["entry_default"]),
            (true, true) => assert_eq!(names, ["entry_2026_02", "entry_default"]),
        }
        // The hold that is open survives, and ends as if nothing had been dropped.
        let settle = Event::Settle { token: Id([2; 16]), actual: 3, until_us: MARCH_US };
        post(&database, 7, vec![record(account(0), settle)], FEBRUARY_US + 2).await;
        let balances = database.balances(vec![account(0)]).await.expect("it reads");
        assert_eq!((balances[&account(0)].posted, balances[&account(0)].pending), (34, 0));
        assert_eq!(database.unbalanced().await.expect("it reads"), []);
        // A change of what was left is still found.
        fresh.tamper(&url, "UPDATE entry SET d_posted = 7 WHERE d_posted = 8");
        assert_eq!(database.first_broken_block(WRITER).await.expect("it reads"), Some(4));
        assert_eq!(database.unbalanced().await.expect("it reads").len(), 1);
    }
}

pub(crate) async fn entries_that_contradict_their_blocks_are_not_dropped<F: Fresh>(fresh: &mut F) {
    let (url, database) = opened(fresh).await;
    two_months(&database).await;
    fresh.tamper(&url, "DELETE FROM entry WHERE seq = 1");
    let error = database.drop_old(FEBRUARY_US).await.expect_err("an entry is missing");
    assert!(matches!(error, Error::BlocksDiffer { rows: 5, entries: 4 }), "{error}");
    assert_eq!(database.entries(WRITER).await.expect("it reads").len(), 6, "nothing was dropped");
}

pub(crate) async fn a_tail_that_was_cut_off_is_found<F: Fresh>(fresh: &mut F) {
    let (url, database) = opened(fresh).await;
    two_months(&database).await;
    let verified =
        database.verify_chain(WRITER, None, |_| ()).await.expect("it reads").expect("it is intact");
    assert_eq!((verified.block, verified.last_seq, verified.recomputed), (5, 7, 5));
    let hash = database.block_hash(WRITER, 4).await.expect("it reads").expect("it is there");
    let after = database.verify_chain(WRITER, Some((4, hash)), |_| ()).await.expect("it reads");
    assert_eq!(after.map(|verified| verified.recomputed), Ok(1), "only what follows is recomputed");
    let wrong = database.verify_chain(WRITER, Some((4, [7; 32])), |_| ()).await.expect("it reads");
    assert_eq!(wrong.map(drop), Err(4));
    fresh.tamper(&url, "DELETE FROM entry WHERE seq = 7");
    fresh.tamper(&url, "DELETE FROM block WHERE block = 5");
    assert_eq!(database.first_broken_block(WRITER).await.expect("it reads"), Some(5));
}

pub(crate) async fn names_are_shown_with_their_accounts_and_the_newest_one_wins<F: Fresh>(fresh: &mut F) {
    let (url, database) = opened(fresh).await;
    let named = |account: Account, name: &str| Record {
        name: Some(Arc::from(name)),
        ..record(account, Event::Use { cost: 1 })
    };
    post(&database, 0, vec![named(account(0), "Acme"), record(account(1), Event::Use { cost: 1 })], 1).await;
    let names = async |filter: &Filter| {
        let used = database.usage(filter, 0, 10).await.expect("it reads");
        let entries = database.page(filter, (Id([0; 16]), -1, -1), 10).await.expect("it reads");
        assert_eq!(database.count(filter).await.expect("it counts"), entries.len() as i64);
        let of_entries: Vec<_> = entries.into_iter().map(|posted| posted.name).collect();
        (used.into_iter().map(|usage| usage.name).collect::<Vec<_>>(), of_entries)
    };
    let acme = || Some("Acme".to_owned());
    assert_eq!(names(&Filter::default()).await, (vec![acme(), None], vec![acme(), None]));
    post(&database, 2, vec![named(account(0), "Acme Ltd")], 2).await;
    let renamed = Filter { name: Some("Acme Ltd".to_owned()), ..Filter::default() };
    assert_eq!(names(&renamed).await.1.len(), 2);
    let gone = Filter { name: acme(), ..Filter::default() };
    assert_eq!(names(&gone).await, (vec![], vec![]));
    // A name can be deleted: it is no part of the chain.
    fresh.tamper(&url, "DELETE FROM account");
    assert_eq!(names(&Filter::default()).await.0, [None, None]);
    assert_eq!(database.first_broken_block(WRITER).await.expect("it reads"), None);
    let one = database.usage(&Filter::default(), 1, 1).await.expect("it reads");
    assert_eq!(one[0].account, account(1), "pages follow each other");
}
