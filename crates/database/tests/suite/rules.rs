//! The rules of posting, without a database.

use tollgate_database::ledger::{Event, HoldState, Id, Kind, Record, Request, Rows, post};

use crate::cases::SETTINGS;
use crate::story::{UNTIL_US, account, record};

const TOKEN: Id = Id([7; 16]);

/// Posts the records one after the other and returns (posted, pending) of the account.
fn balance(rows: &mut Rows, records: &[Record]) -> (i64, i64) {
    post(rows, 0, records, SETTINGS, 0).expect("it posts");
    let balance = &rows.balances[&account(0)];
    (balance.posted, balance.pending)
}

#[test]
fn reservations_follow_the_guarded_transitions() {
    let event = |name: &str| match name {
        "reserve" => Event::Reserve { token: TOKEN, cost: 10, until_us: UNTIL_US },
        "extend" => Event::Extend { token: TOKEN, more: 5, until_us: UNTIL_US },
        "settle" => Event::Settle { token: TOKEN, actual: 8, until_us: UNTIL_US },
        "cancel" => Event::Cancel { token: TOKEN },
        _ => Event::Expire { token: TOKEN },
    };
    let cases = [
        ("reserve", 0, 10, Some(HoldState::Open)),
        ("reserve extend", 0, 15, Some(HoldState::Open)),
        ("extend reserve", 0, 15, Some(HoldState::Open)),
        ("reserve settle", 8, 0, Some(HoldState::Settled)),
        ("settle reserve", 8, 0, Some(HoldState::Settled)),
        ("settle settle", 8, 0, Some(HoldState::Settled)),
        ("settle cancel", 8, 0, Some(HoldState::Settled)),
        ("settle expire", 8, 0, Some(HoldState::Settled)),
        ("reserve cancel", 0, 0, Some(HoldState::Cancelled)),
        ("cancel reserve", 0, 0, Some(HoldState::Cancelled)),
        ("cancel settle", 0, 0, Some(HoldState::Cancelled)),
        ("cancel expire", 0, 0, Some(HoldState::Cancelled)),
        ("reserve expire", 0, 0, Some(HoldState::Expired)),
        ("reserve expire settle", 8, 0, Some(HoldState::Settled)),
        ("reserve expire cancel", 0, 0, Some(HoldState::Expired)),
        ("reserve expire extend", 0, 0, Some(HoldState::Expired)),
        ("expire", 0, 0, Some(HoldState::Expired)),
        ("expire reserve", 0, 0, Some(HoldState::Expired)),
        ("expire extend reserve", 0, 0, Some(HoldState::Expired)),
        ("expire settle reserve", 8, 0, Some(HoldState::Settled)),
        ("expire cancel reserve", 0, 0, Some(HoldState::Expired)),
    ];
    for (names, posted, pending, state) in cases {
        let records: Vec<Record> = names.split(' ').map(|name| record(account(0), event(name))).collect();
        let mut rows = Rows::default();
        assert_eq!(balance(&mut rows, &records), (posted, pending), "{names}");
        assert_eq!(rows.holds.get(&(account(0), TOKEN)).map(|hold| hold.state), state, "{names}");
    }
}

#[test]
fn a_settlement_after_the_end_of_its_hold_is_late() {
    let settle = |at_us| {
        let event = Event::Settle { token: TOKEN, actual: 1, until_us: UNTIL_US };
        Record { at_us, ..record(account(0), event) }.kind()
    };
    assert_eq!([settle(UNTIL_US), settle(UNTIL_US + 1)], [Kind::Settle, Kind::Late]);
}

#[test]
fn a_request_counts_again_only_with_another_nonce_and_content_or_after_the_horizon() {
    let horizon_us = SETTINGS.horizon_us;
    // Nonce, content and time of a second answer with the same id, and what both post.
    let cases = [
        (1, 1, 0, 5),
        (1, 2, 2 * horizon_us, 5),
        (2, 1, horizon_us, 5),
        (2, 1, horizon_us + 1, 10),
        (2, 2, 0, 10),
    ];
    for (nonce, content, after_us, expected) in cases {
        let answer = |nonce, content, at_us| Record {
            request: Some(Request { id: TOKEN, nonce: Id([nonce; 16]), content }),
            at_us,
            ..record(account(0), Event::Use { cost: 5 })
        };
        let records = [answer(1, 1, 0), answer(nonce, content, after_us)];
        assert_eq!(balance(&mut Rows::default(), &records).0, expected, "{nonce} {content} {after_us}");
    }
}

#[test]
fn a_void_undoes_its_own_entry_unless_another_answer_relies_on_it() {
    let request = Some(Request { id: TOKEN, nonce: TOKEN, content: 0 });
    let answer = Record { request, ..record(account(0), Event::Use { cost: 5 }) };
    let void = |seq| Record { event: Event::Void { seq }, ..answer.clone() };
    let answer = || answer.clone();
    let cases = [
        (vec![answer(), void(1)], 0),
        (vec![answer(), void(1), answer()], 5),
        (vec![answer(), answer(), void(1)], 5),
        (vec![answer(), answer(), void(2)], 5),
        (vec![answer(), void(9)], 5),
    ];
    for (records, expected) in cases {
        assert_eq!(balance(&mut Rows::default(), &records).0, expected, "{records:?}");
    }
}

#[test]
fn a_voided_hold_or_settlement_can_be_asked_for_again() {
    let reserve = record(account(0), Event::Reserve { token: TOKEN, cost: 10, until_us: UNTIL_US });
    let settle = record(account(0), Event::Settle { token: TOKEN, actual: 8, until_us: UNTIL_US });
    let refund = |amount| record(account(0), Event::Refund { receipt: TOKEN, charged: 6, amount });
    let void = |seq| record(account(0), Event::Void { seq });
    let used = record(account(0), Event::Use { cost: 6 });
    let cases = [
        (vec![reserve.clone(), void(1)], (0, 0)),
        (vec![reserve.clone(), settle.clone(), void(1)], (8, 0)),
        (vec![reserve.clone(), settle.clone(), void(2)], (0, 10)),
        (vec![reserve, settle.clone(), void(2), settle], (8, 0)),
        (vec![used.clone(), refund(4), refund(4)], (0, 0)),
        (vec![used, refund(4), void(2), refund(5)], (1, 0)),
    ];
    for (records, expected) in cases {
        assert_eq!(balance(&mut Rows::default(), &records), expected, "{records:?}");
    }
}
