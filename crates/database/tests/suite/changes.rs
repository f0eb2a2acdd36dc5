//! What live changes and the audit trail promise on every database.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tollgate_database::audit::{AuditEvent, AuditFault, AuditHead};
use tollgate_database::changes::{ChangeKind, ChangesVersion, Edit, LiveChange};
use tollgate_database::{Database, DatabaseUrl, Error};
use tollgate_testkit::random::Random;

use crate::cases::{Fresh, SETTINGS};

const NOW_US: i64 = 1_800_000_000_000_000;

async fn opened(url: &DatabaseUrl) -> Database {
    let database = Database::connect(url, SETTINGS).await.expect("it connects");
    database.migrate().await.expect("it migrates");
    database
}

fn change(id: &str, spec: &str) -> LiveChange {
    LiveChange {
        id: id.to_owned(),
        kind: ChangeKind::Override,
        version: 1,
        spec: spec.to_owned(),
        until_us: None,
        reason: "because".to_owned(),
        author: "jane".to_owned(),
        created_us: NOW_US,
        changed_us: NOW_US,
    }
}

fn event(action: &str) -> AuditEvent {
    AuditEvent {
        at_us: NOW_US,
        times: 1,
        server: "a".to_owned(),
        actor: "jane".to_owned(),
        address: "127.0.0.1".to_owned(),
        action: action.to_owned(),
        reason: "because".to_owned(),
        ..AuditEvent::default()
    }
}

fn detail(before: Option<&LiveChange>, after: Option<&LiveChange>) -> String {
    let spec = |change: Option<&LiveChange>| change.map_or("none".to_owned(), |change| change.spec.clone());
    format!("{} -> {}", spec(before), spec(after))
}

async fn write(database: &Database, edit: Edit) -> Result<ChangesVersion, Error> {
    let action = match &edit {
        Edit::Add(_) => "add",
        Edit::Replace { .. } => "replace",
        Edit::Remove { .. } => "remove",
    };
    database.write_change(&edit, &event(action), detail).await.map(|written| written.version)
}

fn removal(id: &str, expected: i64) -> Edit {
    Edit::Remove { kind: ChangeKind::Override, id: id.to_owned(), expected }
}

pub(crate) async fn each_change_has_one_row_that_says_what_differs<F: Fresh>(fresh: &mut F) {
    let database = opened(&fresh.url()).await;
    assert_eq!(database.live_changes().await.expect("it reads"), (ChangesVersion::NONE, Vec::new()));
    let added = write(&database, Edit::Add(change("o-1", "one"))).await.expect("it writes");
    assert_eq!(added.number, 1);
    // The same call again, because its answer was lost, is made once.
    assert_eq!(write(&database, Edit::Add(change("o-1", "one"))).await.expect("a repetition"), added);
    let taken = write(&database, Edit::Add(change("o-1", "other"))).await.expect_err("the id is taken");
    assert!(matches!(taken, Error::ChangeExists(_)), "{taken}");
    let replaced = Edit::Replace { change: change("o-1", "two"), expected: 1 };
    assert_eq!(write(&database, replaced.clone()).await.expect("it writes").number, 2);
    let stale = write(&database, replaced).await.expect_err("the version is old");
    assert!(matches!(stale, Error::ChangeStale { expected: 1, found: 2 }), "{stale}");
    let (_, changes) = database.live_changes().await.expect("it reads");
    assert_eq!(changes, [LiveChange { version: 2, ..change("o-1", "two") }]);
    let stale = write(&database, removal("o-1", 1)).await.expect_err("the version is old");
    assert!(matches!(stale, Error::ChangeStale { found: 2, .. }), "{stale}");
    let other_kind = Edit::Remove { kind: ChangeKind::Deny, id: "o-1".to_owned(), expected: 2 };
    let missing = write(&database, other_kind).await.expect_err("it is an override");
    assert!(matches!(missing, Error::ChangeMissing(_)), "{missing}");
    let removed = write(&database, removal("o-1", 2)).await.expect("it writes");
    assert_eq!(database.live_changes().await.expect("it reads"), (removed, Vec::new()));
    let rows = database.audit_page(0, 10).await.expect("it reads");
    let found: Vec<(i64, &str, &str, &str, &str)> = rows
        .iter()
        .map(|row| {
            let event = &row.event;
            (row.seq, &*event.action, &*event.detail, &*event.before, &*event.after)
        })
        .collect();
    assert_eq!(
        found,
        [
            (1, "add", "none -> one", "changes 0", "changes 1"),
            (2, "replace", "one -> two", "changes 1", "changes 2"),
            (3, "remove", "two -> none", "changes 2", "changes 3"),
        ]
    );
    assert_eq!(removed.head, rows[2].hash);
    assert_eq!(database.audit_page(1, 1).await.expect("it reads"), rows[1..2]);
}

/// A change for two hours ends later when its call is repeated, and is still the same one for a while.
pub(crate) async fn a_repeated_call_for_a_length_of_time_is_made_once<F: Fresh>(fresh: &mut F) {
    let database = opened(&fresh.url()).await;
    let (second, hour) = (1_000_000, 3_600_000_000);
    let made = |after_us: i64, length_us: i64| {
        let (created_us, until_us) = (NOW_US + after_us, Some(NOW_US + after_us + length_us));
        Edit::Add(LiveChange { created_us, changed_us: created_us, until_us, ..change("o-1", "one") })
    };
    let first = write(&database, made(0, hour)).await.expect("it writes");
    for (after_us, length_us, is_repetition) in [
        (5 * second, hour, true),
        (5 * second, hour + 1_000, true),
        (599 * second, hour, true),
        (601 * second, hour, false),
        (5 * second, 2 * hour, false),
        (-second, hour, false),
    ] {
        let again = write(&database, made(after_us, length_us)).await;
        match is_repetition {
            true => assert_eq!(again.expect("a repetition"), first),
            false => {
                assert!(matches!(again, Err(Error::ChangeExists(_))), "{after_us} {length_us}: {again:?}")
            }
        }
    }
    let (_, changes) = database.live_changes().await.expect("it reads");
    assert_eq!(changes[0].until_us, Some(NOW_US + hour), "the first call counts");
}

/// A change whose row cannot be written is not made.
pub(crate) async fn a_change_without_its_row_is_not_made<F: Fresh>(fresh: &mut F) {
    let url = fresh.url();
    let database = opened(&url).await;
    write(&database, Edit::Add(change("o-1", "one"))).await.expect("it writes");
    let others = "at, times, server, actor, address, action, target, reason, detail, state_before, state_after, prev, hash";
    fresh.tamper(&url, &format!("INSERT INTO audit SELECT 2, {others} FROM audit"));
    drop(write(&database, Edit::Add(change("o-2", "two"))).await.expect_err("its row has no place"));
    fresh.tamper(&url, "DELETE FROM audit WHERE seq = 2");
    let (version, changes) = database.live_changes().await.expect("it reads");
    assert_eq!((version.number, changes.len()), (1, 1));
    assert_eq!(database.audit_head().await.expect("it reads").seq, 1);
}

pub(crate) async fn of_writers_with_the_same_version_one_wins<F: Fresh>(fresh: &mut F) {
    let database = Arc::new(opened(&fresh.url()).await);
    write(&database, Edit::Add(change("o-1", "0"))).await.expect("it writes");
    for round in 1..=20 {
        let race = |name: &'static str| {
            let database = Arc::clone(&database);
            let spec = format!("{name} {round}");
            tokio::spawn(async move {
                write(&database, Edit::Replace { change: change("o-1", &spec), expected: round }).await
            })
        };
        let (one, other) = (race("one"), race("other"));
        let (one, other) = (one.await.expect("it ends"), other.await.expect("it ends"));
        let is_stale = |done: &Result<ChangesVersion, Error>| matches!(done, Err(Error::ChangeStale { .. }));
        assert!(one.is_ok() != other.is_ok(), "{one:?} {other:?}");
        assert!(is_stale(&one) || is_stale(&other), "{one:?} {other:?}");
    }
    assert_eq!(database.audit_head().await.expect("it reads").seq, 21);
}

/// What is there after random calls is what a map says, and every call that was made has one row.
pub(crate) async fn random_calls_end_in_what_a_map_says<F: Fresh>(fresh: &mut F, calls: u32) {
    let database = opened(&fresh.url()).await;
    let mut random = Random::new(17);
    let mut model: BTreeMap<String, LiveChange> = BTreeMap::new();
    let mut made = 0;
    for call in 0..calls {
        let id = format!("o-{}", (random.bits() % 20));
        let expected = i64::try_from(1 + (random.bits() % 4)).expect("a small number");
        let written = LiveChange { spec: call.to_string(), ..change(&id, "") };
        let found = model.get(&id).cloned();
        let edit = match random.bits() % 3 {
            0 => Edit::Add(written.clone()),
            1 => Edit::Replace { change: written.clone(), expected },
            _ => removal(&id, expected),
        };
        let done = write(&database, edit.clone()).await;
        let is_current = found.as_ref().is_some_and(|found| found.version == expected);
        match (edit, found) {
            (Edit::Add(_), None) => {
                model.insert(id, written);
                made += 1;
                assert_eq!(done.expect("it is new").number, made);
            }
            (Edit::Add(_), Some(_)) => assert!(matches!(done, Err(Error::ChangeExists(_))), "{done:?}"),
            (_, None) => assert!(matches!(done, Err(Error::ChangeMissing(_))), "{done:?}"),
            (_, Some(found)) if !is_current => {
                let stale = matches!(done, Err(Error::ChangeStale { found: version, .. }) if version == found.version);
                assert!(stale, "{done:?}");
            }
            (Edit::Replace { .. }, Some(found)) => {
                model.insert(id, LiveChange { version: found.version + 1, ..written });
                made += 1;
                assert_eq!(done.expect("the version is current").number, made);
            }
            (Edit::Remove { .. }, Some(_)) => {
                model.remove(&id);
                made += 1;
                assert_eq!(done.expect("the version is current").number, made);
            }
        }
    }
    let (version, changes) = database.live_changes().await.expect("it reads");
    let changes: BTreeMap<String, LiveChange> =
        changes.into_iter().map(|change| (change.id.clone(), change)).collect();
    assert_eq!((version.number, changes), (made, model));
    let head = database.verify_audit(None).await.expect("it reads").expect("the trail is intact");
    assert_eq!(head.seq, made);
}

pub(crate) async fn ended_changes_are_dropped_after_a_week<F: Fresh>(fresh: &mut F) {
    let database = opened(&fresh.url()).await;
    let week_us = 7 * 86_400 * 1_000_000;
    for (id, until_us) in [("o-1", NOW_US - week_us - 1), ("o-2", NOW_US - week_us), ("o-3", NOW_US + 1)] {
        let change = LiveChange { until_us: Some(until_us), ..change(id, "x") };
        write(&database, Edit::Add(change)).await.expect("it writes");
    }
    let (_, changes) = database.live_changes().await.expect("it reads");
    let ids: Vec<&str> = changes.iter().map(|change| change.id.as_str()).collect();
    assert_eq!(ids, ["o-2", "o-3"]);
}

/// Each kind of tampering is found: a changed, deleted, inserted or moved row, and a cut tail.
pub(crate) async fn tampering_with_the_trail_is_found<F: Fresh>(fresh: &mut F) {
    let hash_of = "(SELECT hash FROM audit WHERE seq = 3)";
    for (sql, expected) in [
        ("UPDATE audit SET actor = 'mallory' WHERE seq = 3", AuditFault::Changed(3)),
        ("UPDATE audit SET detail = 'x' WHERE seq = 3", AuditFault::Changed(3)),
        ("UPDATE audit SET times = 2 WHERE seq = 3", AuditFault::Changed(3)),
        ("UPDATE audit SET at = at - 1 WHERE seq = 5", AuditFault::Changed(5)),
        ("UPDATE audit SET hash = prev WHERE seq = 5", AuditFault::Changed(5)),
        ("DELETE FROM audit WHERE seq = 3", AuditFault::Missing(3)),
        ("DELETE FROM audit WHERE seq = 1", AuditFault::Missing(1)),
        ("DELETE FROM audit WHERE seq > 3", AuditFault::Cut { found: 3, recorded: 5 }),
        ("UPDATE audit SET seq = 7 - seq WHERE seq IN (3, 4)", AuditFault::Changed(3)),
        // Text that is moved from one column to the next.
        ("UPDATE audit SET server = 'aj', actor = 'ane' WHERE seq = 2", AuditFault::Changed(2)),
    ] {
        let url = fresh.url();
        let database = opened(&url).await;
        for action in ["one", "two", "three", "four", "five"] {
            database.audit(&event(action)).await.expect("it writes");
        }
        let head = database.verify_audit(None).await.expect("it reads").expect("it is intact");
        assert_eq!(
            (head.seq, Some(head.hash)),
            (5, database.audit_page(4, 1).await.ok().map(|rows| rows[0].hash))
        );
        for sql in sql.split(';') {
            // SQLite checks uniqueness row by row, so two rows are exchanged in three steps.
            match sql.strip_prefix("UPDATE audit SET seq = 7 - seq") {
                None => fresh.tamper(&url, sql),
                Some(_) => {
                    for (from, to) in [(3, 30), (4, 3), (30, 4)] {
                        fresh.tamper(&url, &format!("UPDATE audit SET seq = {to} WHERE seq = {from}"));
                    }
                }
            }
        }
        let found = database.verify_audit(None).await.expect("it reads");
        assert_eq!(found, Err(expected), "{sql}");
    }
    // A writer that also changes the recorded end is found only with a head that was kept elsewhere.
    let url = fresh.url();
    let database = opened(&url).await;
    for action in ["one", "two", "three", "four", "five"] {
        database.audit(&event(action)).await.expect("it writes");
    }
    let kept = database.audit_head().await.expect("it reads");
    fresh.tamper(&url, &format!("UPDATE control SET seq = 3, head = {hash_of}"));
    fresh.tamper(&url, "DELETE FROM audit WHERE seq > 3");
    let cut = database.verify_audit(None).await.expect("it reads").expect("the rest is a valid chain");
    assert_eq!(cut.seq, 3);
    let found = database.verify_audit(Some(kept)).await.expect("it reads");
    assert_eq!(found, Err(AuditFault::Cut { found: 3, recorded: 5 }));
    // And a trail that was written again has another hash at the same number.
    for action in ["vier", "five"] {
        database.audit(&event(action)).await.expect("it writes");
    }
    let found = database.verify_audit(Some(kept)).await.expect("it reads");
    assert_eq!(found, Err(AuditFault::Unexpected(5)));
    let early = AuditHead { seq: 3, hash: database.audit_page(2, 1).await.expect("it reads")[0].hash };
    assert_eq!(database.verify_audit(Some(early)).await.expect("it reads").map(|head| head.seq), Ok(5));
}

/// A server that waits hears of a commit without reading the version again and again.
pub(crate) async fn commits_are_announced(url: &DatabaseUrl) {
    let (writer, reader) = (opened(url).await, opened(url).await);
    let listener = reader.listen().await.expect("it listens").expect("PostgreSQL announces");
    write(&writer, Edit::Add(change("o-1", "one"))).await.expect("it writes");
    tokio::time::timeout(Duration::from_secs(5), listener.heard()).await.expect("it hears the commit");
    assert!(!listener.has_ended());
    assert_eq!(reader.changes_version().await.expect("it reads").number, 1);
}
