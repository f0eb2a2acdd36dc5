//! Stories whose outcome is known without a ledger: what was really used and what is still held.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tollgate_database::ledger::{Account, Detail, Event, Id, Record, Request, Subject};

/// What happened to one account. Its records are spread over several writers and arrive in any order.
#[derive(Clone, Debug)]
pub(crate) enum Story {
    Use {
        cost: i64,
    },
    Reservation {
        cost: i64,
        extends: Vec<i64>,
        end: End,
    },
    Refunds {
        cost: i64,
        amounts: Vec<i64>,
    },
    /// One request that was answered several times. One of the answers may not have reached the client.
    Answers {
        cost: i64,
        answers: usize,
        voided: bool,
    },
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    Open,
    Cancelled,
    Settled(i64),
    Expired,
    ExpiredAndSettled(i64),
}

/// Units used and held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Truth {
    pub(crate) posted: i64,
    pub(crate) pending: i64,
}

/// A record, and the one that must have been posted by the same writer before it.
pub(crate) struct Step {
    pub(crate) record: Record,
    pub(crate) void: Option<Record>,
}

pub(crate) const UNTIL_US: i64 = 5_000_000;

pub(crate) fn stories() -> impl Strategy<Value = Vec<(u8, Story)>> {
    let end = prop_oneof![
        Just(End::Open),
        Just(End::Cancelled),
        Just(End::Expired),
        (0..30_i64).prop_map(End::Settled),
        (0..30_i64).prop_map(End::ExpiredAndSettled),
    ];
    let reservation = (1..20_i64, prop::collection::vec(1..9_i64, 0..3), end);
    let story = prop_oneof![
        (1..20_i64).prop_map(|cost| Story::Use { cost }),
        reservation.prop_map(|(cost, extends, end)| Story::Reservation { cost, extends, end }),
        (1..20_i64, prop::collection::vec(1..9_i64, 0..5))
            .prop_map(|(cost, amounts)| Story::Refunds { cost, amounts }),
        (1..20_i64, 1..4_usize, any::<bool>()).prop_map(|(cost, answers, voided)| Story::Answers {
            cost,
            answers,
            voided
        }),
    ];
    prop::collection::vec((0..3_u8, story), 1..12)
}

pub(crate) fn account(number: u8) -> Account {
    let subject = Subject { rule: "tokens".into(), id: Id([number; 16]) };
    Account { subject, period_us: 1_000_000 }
}

pub(crate) fn record(account: Account, event: Event) -> Record {
    Record {
        account,
        ends_us: 9_000_000,
        allowance: 100,
        at_us: 2_000_000,
        rev: 1,
        detail: Detail::Entries,
        request: None,
        name: None,
        event,
    }
}

impl Story {
    pub(crate) fn steps(&self, number: usize, account: &Account) -> Vec<Step> {
        let id = Id([0xa0 + number as u8; 16]);
        let step = |event| Step { record: record(account.clone(), event), void: None };
        match self {
            Story::Use { cost } => vec![step(Event::Use { cost: *cost })],
            Story::Reservation { cost, extends, end } => {
                let mut steps = vec![step(Event::Reserve { token: id, cost: *cost, until_us: UNTIL_US })];
                let more = extends.iter().map(|&more| Event::Extend { token: id, more, until_us: UNTIL_US });
                steps.extend(more.map(step));
                let settle = |actual| Event::Settle { token: id, actual, until_us: UNTIL_US };
                match *end {
                    End::Open => {}
                    End::Cancelled => steps.push(step(Event::Cancel { token: id })),
                    End::Expired => steps.push(step(Event::Expire { token: id })),
                    End::Settled(actual) => steps.push(step(settle(actual))),
                    End::ExpiredAndSettled(actual) => {
                        steps.extend([step(Event::Expire { token: id }), step(settle(actual))]);
                    }
                }
                steps
            }
            Story::Refunds { cost, amounts } => {
                let refund = |&amount: &i64| Event::Refund { receipt: id, charged: *cost, amount };
                let mut steps = vec![step(Event::Use { cost: *cost })];
                steps.extend(amounts.iter().map(refund).map(step));
                steps
            }
            Story::Answers { cost, answers, voided } => {
                let request = Some(Request { id, nonce: id, content: *cost });
                let answer = Record { request, ..record(account.clone(), Event::Use { cost: *cost }) };
                let void = Record { event: Event::Void { seq: 0 }, ..answer.clone() };
                let step = |index| Step {
                    record: answer.clone(),
                    void: (*voided && index == 0).then(|| void.clone()),
                };
                (0..*answers).map(step).collect()
            }
        }
    }

    fn truth(&self) -> Truth {
        match self {
            Story::Use { cost } => Truth { posted: *cost, pending: 0 },
            Story::Reservation { cost, extends, end } => match *end {
                End::Open => Truth { posted: 0, pending: cost + extends.iter().sum::<i64>() },
                End::Cancelled | End::Expired => Truth::default(),
                End::Settled(actual) | End::ExpiredAndSettled(actual) => Truth { posted: actual, pending: 0 },
            },
            Story::Refunds { cost, amounts } => {
                Truth { posted: cost - cost.min(&amounts.iter().sum()), pending: 0 }
            }
            Story::Answers { answers: 1, voided: true, .. } => Truth::default(),
            Story::Answers { cost, .. } => Truth { posted: *cost, pending: 0 },
        }
    }
}

/// Returns what really happened to each account.
pub(crate) fn truth(stories: &[(u8, Story)]) -> BTreeMap<Account, Truth> {
    let mut truth: BTreeMap<Account, Truth> = BTreeMap::new();
    for (number, story) in stories {
        let Truth { posted, pending } = story.truth();
        let sum = truth.entry(account(*number)).or_default();
        sum.posted += posted;
        sum.pending += pending;
    }
    truth
}
