//! Rows of the ledger, as both databases store them.

use std::collections::{BTreeMap, BTreeSet};

use super::record::{Account, Event, HoldState, Id, Kind, Record, RequestState, Subject};

/// A balance. At every commit `granted = available + pending + posted`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Balance {
    /// End of the period in microseconds since 1970.
    pub ends_us: i64,
    /// The limit of the rule, by the newest event.
    pub allowance: i64,
    /// Store time of the event that set `allowance`.
    pub allowance_at_us: i64,
    /// Sum of corrections and grants.
    pub extra: i64,
    /// Number of the last correction or grant.
    pub extra_no: i64,
    /// Units held by reservations.
    pub pending: i64,
    /// Units used.
    pub posted: i64,
}

impl Balance {
    /// Returns what the account may use in its period.
    pub fn granted(&self) -> i64 {
        self.allowance + self.extra
    }

    /// Returns what is left; negative after an overdraft.
    pub fn available(&self) -> i64 {
        self.granted() - self.pending - self.posted
    }
}

/// A reservation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hold {
    /// Units held, as far as reserve and extend have arrived.
    pub cost: i64,
    /// End of the hold in microseconds since 1970.
    pub until_us: i64,
    /// Its state.
    pub state: HoldState,
}

/// A request id.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequestRow {
    /// The nonce of the first answer.
    pub nonce: Id,
    /// Hash of what was asked.
    pub content: i64,
    /// Store time of the first answer.
    pub at_us: i64,
    /// Its state.
    pub state: RequestState,
}

/// A posted entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Sequence number of the writer.
    pub seq: i64,
    /// Index among the rows of one sequence number.
    pub n: i64,
    /// The kind.
    pub kind: Kind,
    /// The account.
    pub account: Account,
    /// Store time; of the last event if several were folded.
    pub at_us: i64,
    /// Revision of the gate's state.
    pub rev: i64,
    /// Change of `posted`.
    pub d_posted: i64,
    /// Change of `pending`.
    pub d_pending: i64,
    /// Change of `granted`.
    pub d_granted: i64,
    /// The reservation or the receipt.
    pub token: Option<Id>,
    /// The request id.
    pub request: Option<Id>,
    /// The nonce of the request.
    pub nonce: Option<Id>,
    /// Why the entry posted nothing, or the reason of a correction.
    pub cause: String,
    /// Who made a correction.
    pub actor: String,
}

/// Rows that a batch reads and changes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rows {
    /// Balances.
    pub balances: BTreeMap<Account, Balance>,
    /// Reservations.
    pub holds: BTreeMap<(Account, Id), Hold>,
    /// Refunded units by receipt.
    pub receipts: BTreeMap<(Subject, Id), i64>,
    /// Request ids.
    pub requests: BTreeMap<(Subject, Id), RequestRow>,
    /// Earlier entries of the writer, by sequence number. They are only read.
    pub voided: BTreeMap<i64, Entry>,
}

/// Keys of the rows that a batch needs, in the order in which they are locked.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Keys {
    /// Accounts, to be locked first and in this order.
    pub accounts: BTreeSet<Account>,
    /// Reservations.
    pub holds: BTreeSet<(Account, Id)>,
    /// Receipts.
    pub receipts: BTreeSet<(Subject, Id)>,
    /// Request ids.
    pub requests: BTreeSet<(Subject, Id)>,
    /// Sequence numbers of entries to void.
    pub voided: BTreeSet<i64>,
}

impl Keys {
    /// Collects the keys of a batch.
    pub fn of(records: &[Record]) -> Keys {
        let mut keys = Keys::default();
        for record in records {
            keys.accounts.insert(record.account.clone());
            if let Some(token) = record.token() {
                keys.holds.insert((record.account.clone(), token));
            }
            if let Some(request) = &record.request {
                keys.requests.insert((record.account.subject.clone(), request.id));
            }
            match record.event {
                Event::Refund { receipt, .. } => {
                    keys.receipts.insert((record.account.subject.clone(), receipt));
                }
                Event::Void { seq } => {
                    keys.voided.insert(seq);
                }
                _ => {}
            }
        }
        keys
    }

    /// Adds the keys of the entries that the batch voids. Call it after the entries were loaded.
    pub fn add_voided<'a>(&mut self, voided: impl IntoIterator<Item = &'a Entry>) {
        for entry in voided {
            let Some(token) = entry.token else { continue };
            if entry.kind == Kind::Refund {
                self.receipts.insert((entry.account.subject.clone(), token));
            } else {
                self.holds.insert((entry.account.clone(), token));
            }
        }
    }
}
