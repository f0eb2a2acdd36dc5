//! What survives in the journal when a process or a disk fails.

use std::time::Duration;

use tempfile::TempDir;

use super::*;
use crate::ledger::{Account, Detail, Event, Subject};

const WRITER: Id = Id([5; 16]);

fn record(cost: i64) -> Record {
    let subject = Subject { rule: "tokens".into(), id: Id([7; 16]) };
    Record {
        account: Account { subject, period_us: 0 },
        ends_us: 0,
        allowance: 10,
        at_us: 1,
        rev: 0,
        detail: Detail::Entries,
        request: None,
        name: None,
        event: Event::Use { cost },
    }
}

fn costs(reader: &mut JournalReader) -> Vec<i64> {
    let mut found = Vec::new();
    loop {
        let frames = reader.next(3).expect("it reads");
        if frames.is_empty() {
            return found;
        }
        for frame in frames {
            assert_eq!(frame.seq, found.len() as i64 + 1, "dense numbers");
            let Event::Use { cost } = frame.record.event else { panic!("a use") };
            found.push(cost);
        }
    }
}

fn segments(folder: &TempDir) -> Vec<PathBuf> {
    let names = SegmentName::list(folder.path()).expect("it reads");
    names.into_iter().map(|name| name.path).collect()
}

#[test]
fn a_folder_is_locked_until_its_holder_has_gone() {
    let folder = TempDir::new().expect("a folder");
    let held = JournalFolder::open(folder.path()).expect("it opens");
    assert!(matches!(JournalFolder::open(folder.path()), Err(JournalError::Locked(_))));
    drop(held);
    JournalFolder::open(folder.path()).expect("it opens");
}

#[test]
fn a_tail_torn_at_any_byte_loses_only_the_last_record() {
    let folder = TempDir::new().expect("a folder");
    let held = JournalFolder::open(folder.path()).expect("it opens");
    let journal = held.begin(WRITER).expect("it begins");
    journal.append(&[record(1), record(2)]).expect("it appends");
    let path = segments(&folder).remove(0);
    let before = std::fs::metadata(&path).expect("it is there").len();
    journal.append(&[record(3)]).expect("it appends");
    let whole = std::fs::read(&path).expect("it reads");
    for len in before as usize..=whole.len() {
        std::fs::write(&path, &whole[..len]).expect("it writes");
        let mut readers = held.recover().expect("only the tail is torn");
        let expected: &[i64] = if len == whole.len() { &[1, 2, 3] } else { &[1, 2] };
        assert_eq!(readers[0].last_seq(), expected.len() as i64);
        assert_eq!(costs(&mut readers[0]), expected, "cut at {len}");
        let left = std::fs::metadata(&path).expect("it is there").len();
        assert_eq!(left, if len == whole.len() { len as u64 } else { before }, "the tail is cut");
    }
}

#[test]
fn damage_before_complete_records_is_an_error_and_cuts_nothing() {
    let folder = TempDir::new().expect("a folder");
    let held = JournalFolder::open(folder.path()).expect("it opens");
    let journal = held.begin(WRITER).expect("it begins");
    journal.append(&[record(1)]).expect("it appends");
    let path = segments(&folder).remove(0);
    let first = std::fs::metadata(&path).expect("it is there").len() as usize;
    journal.append(&[record(2), record(3)]).expect("it appends");
    let mut bytes = std::fs::read(&path).expect("it reads");
    bytes[first + 20] ^= 1;
    std::fs::write(&path, &bytes).expect("it writes");
    let error = held.recover().expect_err("record 3 is complete");
    assert!(matches!(error, JournalError::Damaged { offset, .. } if offset == first as u64), "{error}");
    assert_eq!(std::fs::read(&path).expect("it reads"), bytes);
}

#[test]
fn a_failed_sync_is_repeated_in_a_new_segment_that_wins() {
    let folder = TempDir::new().expect("a folder");
    let held = JournalFolder::open(folder.path()).expect("it opens");
    let journal = held.begin(WRITER).expect("it begins");
    journal.append(&[record(1)]).expect("it appends");
    journal.sync().expect("it syncs");
    journal.append(&[record(2), record(3)]).expect("it appends");
    journal.lock().fail_syncs = 1;
    journal.sync().expect("the second segment is synced");
    journal.append(&[record(4)]).expect("it appends");
    let files = segments(&folder);
    assert_eq!(files.len(), 2);
    // The kernel dropped what could not be synced: the old segment ends in the middle of record 3.
    let old = std::fs::read(&files[0]).expect("it reads");
    std::fs::write(&files[0], &old[..old.len() - 5]).expect("it writes");
    let mut readers = held.recover().expect("it recovers");
    assert_eq!(costs(&mut readers[0]), [1, 2, 3, 4]);
    assert_eq!(costs(&mut journal.reader()), [1, 2, 3, 4]);
}

#[test]
fn after_two_failed_syncs_nothing_more_is_acknowledged() {
    let folder = TempDir::new().expect("a folder");
    let held = JournalFolder::open(folder.path()).expect("it opens");
    let journal = held.begin(WRITER).expect("it begins");
    journal.append(&[record(1)]).expect("it appends");
    journal.lock().fail_syncs = 2;
    journal.sync().expect_err("both segments fail");
    assert!(matches!(journal.append(&[record(2)]), Err(JournalError::Failed(_))));
}

#[test]
fn a_full_segment_is_followed_by_the_next_and_a_reader_continues_anywhere() {
    let folder = TempDir::new().expect("a folder");
    let held = JournalFolder::open(folder.path()).expect("it opens");
    let journal = Journal::begin(folder.path(), WRITER, 300).expect("it begins");
    let mut reader = journal.reader();
    assert!(reader.next(9).expect("it reads").is_empty());
    for cost in 1..=20 {
        journal.append(&[record(cost)]).expect("it appends");
    }
    assert!(segments(&folder).len() > 3);
    assert_eq!(costs(&mut reader), (1..=20).collect::<Vec<_>>());
    reader.seek(17);
    let again: Vec<i64> = reader.next(9).expect("it reads").iter().map(|frame| frame.seq).collect();
    assert!(again.starts_with(&[18]), "{again:?}");
    held.remove(WRITER, Duration::from_secs(60)).expect("young segments stay");
    assert_eq!(costs(&mut journal.reader()).len(), 20);
    held.remove(WRITER, Duration::ZERO).expect("it removes");
    assert!(segments(&folder).is_empty());
}

#[test]
fn records_that_are_missing_before_the_first_segment_are_an_error() {
    let folder = TempDir::new().expect("a folder");
    let _held = JournalFolder::open(folder.path()).expect("it opens");
    let journal = Journal::begin(folder.path(), WRITER, 200).expect("it begins");
    for cost in 1..=4 {
        journal.append(&[record(cost)]).expect("it appends");
    }
    std::fs::remove_file(&segments(&folder)[0]).expect("it removes");
    let error = journal.reader().next(9).expect_err("record 1 is gone");
    assert!(matches!(error, JournalError::CursorTooOld { cursor: 0 }), "{error}");
}

#[test]
fn posted_segments_are_kept_as_long_as_asked_and_no_longer() {
    let folder = TempDir::new().expect("a folder");
    let held = JournalFolder::open(folder.path()).expect("it opens");
    drop(held.begin(Id([4; 16])).expect("an earlier incarnation"));
    let journal = Journal::begin(folder.path(), WRITER, 1).expect("it begins");
    for cost in 1..=4 {
        journal.append(&[record(cost)]).expect("it appends");
    }
    let whole = segments(&folder);
    assert!(whole.len() >= 5, "each record begins a segment: {whole:?}");
    held.prune(WRITER, 4, Duration::from_secs(3600)).expect("it prunes");
    assert_eq!(segments(&folder), whole, "nothing is old enough");
    held.prune(WRITER, 2, Duration::ZERO).expect("it prunes");
    let mut reader = journal.reader();
    reader.seek(2);
    let left: Vec<i64> = reader.next(9).expect("it reads").into_iter().map(|frame| frame.seq).collect();
    assert_eq!(left.first(), Some(&3), "what is not posted stays");
    assert!(segments(&folder).len() < whole.len());
    held.prune(WRITER, 4, Duration::ZERO).expect("it prunes");
    assert_eq!(segments(&folder), whole[whole.len() - 1..], "the segment that is appended to stays");
}
