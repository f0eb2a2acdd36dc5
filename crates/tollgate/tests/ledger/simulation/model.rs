//! What travels in the simulation, and what servers and the database keep.

use std::collections::BTreeMap;

use tollgate::ledger::database::ledger::{Entry, Id, Record, Rows};
use tollgate_core::stamped::{Restore, Revision};

/// What an attempt is called in the books of the test.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Name {
    /// A charge under a request id.
    Request(u64),
    /// A charge without an id. Its number is that of its receipt, too.
    Once(u64),
    /// A reservation, by its token.
    Hold(u64),
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Ask {
    Charge,
    Reserve,
    Settle,
    Cancel,
    Refund,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Reply {
    /// Whether it changed the account.
    pub(super) is_done: bool,
    /// Units booked or given back.
    pub(super) amount: i64,
    pub(super) is_late: bool,
    pub(super) until_us: i64,
    pub(super) at_us: i64,
    pub(super) revision: Revision,
    /// Whether the gate repeated an earlier answer.
    pub(super) is_replay: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Stage {
    /// On its way to the gate.
    Sent,
    /// On its way back.
    Answered(Reply),
    /// The gate had no state to trust.
    Lost,
    /// The ledger has answered.
    Found(Restore),
    /// Acknowledged, and not in the journal: only a mutant does that.
    Acknowledged(Reply),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) name: Name,
    pub(super) ask: Ask,
    /// Units asked for; of a settlement the units booked, of a refund the units of the charge.
    pub(super) cost: i64,
    pub(super) sent_us: i64,
    pub(super) stage: Stage,
}

pub(super) struct Server {
    pub(super) writer: Id,
    pub(super) journal: Vec<Record>,
    /// Where it believes that the ledger is.
    pub(super) cursor: i64,
    /// Journals of earlier lives, which a restart ships.
    pub(super) kept: Vec<(Id, Vec<Record>)>,
    pub(super) calls: Vec<Call>,
    /// It cannot reach the database before this instant.
    pub(super) cut_until_us: i64,
    /// When the database last answered it.
    pub(super) confirmed_us: i64,
}

/// What the database has of a writer that has not ended.
#[derive(Clone, Copy)]
pub(super) struct OpenWriter {
    pub(super) clean_at_us: i64,
    pub(super) last_seen_us: i64,
}

#[derive(Clone, Default)]
pub(super) struct Sql {
    pub(super) rows: Rows,
    pub(super) cursors: BTreeMap<Id, i64>,
    pub(super) open: BTreeMap<Id, OpenWriter>,
    pub(super) entries: Vec<Entry>,
}

pub(super) struct Look {
    pub(super) used: i64,
    pub(super) revision: Revision,
    pub(super) clean_after_us: i64,
}
