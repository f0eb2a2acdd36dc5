//! The book of grants on a manual clock.

use tollgate_core::algorithm::fixed_window::FixedWindow;
use tollgate_core::{Keyspace, Operation, Span, Subject};

use super::*;

const HOLD_US: u64 = 100_000;

fn id() -> AccountId {
    let limit = Limit::FixedWindow(FixedWindow::new(10_000, Span::from_secs(1)).unwrap());
    AccountId { fingerprint: 7, limit, hold: SliceHold::new(Span::from_us(HOLD_US)).unwrap() }
}

fn owner() -> Owner {
    Owner::of(&Keyspace::new("test", "rule").unwrap().key(Subject::from_u128(7)))
}

/// A book that knows demand and remaining units of one key at `now_us`.
fn busy_book(now_us: u64, store_us: u64) -> GrantBook {
    let mut book = GrantBook::default();
    for _ in 0..50 {
        assert_eq!(book.spend(&id(), 1, now_us), None, "nothing was granted");
    }
    book.take(0, now_us, store_us);
    book
}

impl GrantBook {
    /// Books a grant as the store would.
    fn take(&mut self, extra: u64, sent_us: u64, store_us: u64) {
        let store_now = Time::from_us(store_us);
        let answer = id().limit.decide(None, store_now, &Operation::charge(1 + extra)).answer;
        let booked = Booked { cost: 1, extra, answer: &answer, store_now, sent_us };
        assert_eq!(self.admitted(&id(), &booked, owner), 0);
    }

    fn spend_all(&mut self, now_us: u64) -> u64 {
        (0..1_000).take_while(|_| self.spend(&id(), 1, now_us).is_some()).count() as u64
    }
}

#[test]
fn a_grant_is_spent_once_and_never_beyond_its_units() {
    let mut book = busy_book(0, 0);
    assert_eq!(book.begin_take(&id(), 1, Some(1), 0), 50);
    assert_eq!(book.begin_take(&id(), 1, Some(1), 0), 0, "one is on its way");
    book.take(50, 0, 0);
    let first = book.spend(&id(), 20, 10).unwrap();
    assert_eq!(book.spend(&id(), 31, 10), None, "30 are left");
    assert_eq!(book.spend_all(10), 30);
    book.put_back(&id(), &first);
    assert_eq!(book.spend_all(10), 20, "what was put back can be spent again");
}

#[test]
fn a_grant_ends_one_hold_after_it_was_sent() {
    let mut book = busy_book(0, 0);
    book.take(50, 1_000, 0);
    assert!(book.spend(&id(), 1, 1_000 + HOLD_US - 1).is_some());
    assert_eq!(book.spend(&id(), 1, 1_000 + HOLD_US), None);
}

#[test]
fn a_grant_ends_with_its_window_if_that_is_earlier() {
    let mut book = busy_book(0, 0);
    book.take(50, 1_000, 970_000);
    assert!(book.spend(&id(), 1, 1_000 + 29_999).is_some());
    assert_eq!(book.spend(&id(), 1, 1_000 + 30_000), None);
    let mut ended = Ended::default();
    book.end_due(1_000 + 30_000, &mut ended);
    assert_eq!((ended.returns.len(), ended.lapsed), (0, 49), "the store has forgotten them too");
}

#[test]
fn unspent_units_are_returned_once_when_the_grant_ends() {
    let mut book = busy_book(0, 0);
    book.take(50, 0, 0);
    book.spend(&id(), 20, 10).unwrap();
    let mut ended = Ended::default();
    book.end_due(HOLD_US - 1, &mut ended);
    assert!(ended.returns.is_empty());
    let late = book.spend(&id(), 1, HOLD_US - 1).unwrap();
    book.end_due(HOLD_US, &mut ended);
    book.end_due(2 * HOLD_US, &mut ended);
    let returned: Vec<(u64, u64)> = ended.returns.iter().map(|back| (back.charged, back.unspent)).collect();
    assert_eq!(returned, [(51, 29)]);
    book.put_back(&id(), &late);
    book.end_due(3 * HOLD_US, &mut ended);
    assert_eq!(ended.returns.len(), 1, "what comes back later is lost");
}

#[test]
fn other_numbers_and_a_reset_key_have_no_units() {
    let mut book = busy_book(0, 0);
    book.take(50, 0, 0);
    let other = Limit::FixedWindow(FixedWindow::new(10_001, Span::from_secs(1)).unwrap());
    assert_eq!(book.spend(&AccountId { limit: other, ..id() }, 1, 10), None);
    assert_eq!(book.forget(7), 50);
    assert_eq!(book.spend(&id(), 1, 10), None);
}

#[test]
fn a_lost_take_does_not_block_further_ones_for_ever() {
    let mut book = busy_book(0, 0);
    assert!(book.begin_take(&id(), 1, Some(1), 0) > 0);
    book.spend(&id(), 40, TAKING_MAX_US - 1);
    assert_eq!(book.begin_take(&id(), 1, Some(1), TAKING_MAX_US - 1), 0);
    assert!(book.begin_take(&id(), 1, Some(1), TAKING_MAX_US) > 0);
}

#[test]
fn idle_keys_are_forgotten_and_the_number_of_keys_is_bounded() {
    let mut book = GrantBook::default();
    for fingerprint in 0..3 * KEYS_MAX as u128 {
        book.spend(&AccountId { fingerprint, ..id() }, 1, 0);
    }
    assert_eq!(book.accounts.len(), KEYS_MAX);
    book.spend(&AccountId { fingerprint: 5, ..id() }, 1, IDLE_US - 1);
    book.end_due(IDLE_US, &mut Ended::default());
    assert_eq!(book.accounts.len(), 1);
    book.end_due(2 * IDLE_US, &mut Ended::default());
    assert_eq!((book.accounts.len(), book.due.len()), (0, 0));
}

#[test]
fn refusals_count_as_early_for_one_hold() {
    let mut book = busy_book(0, 0);
    assert!(book.refused(&id(), 0, 1_000));
    assert!(book.refused(&id(), 0, 1_000 + HOLD_US));
    assert!(!book.refused(&id(), 0, 1_001 + HOLD_US), "no server holds units any more");
    book.take(0, 2 * HOLD_US, 0);
    assert!(book.refused(&id(), 0, 3 * HOLD_US), "an admission ends the run of refusals");
}
