//! Operations on a limit's state, and the marks and tokens that connect a follow-up with its charge.

use std::fmt;

use crate::limit::Limit;
use crate::stamped::{Adjust, Extra, Restore};
use crate::time::{Span, Time};

/// One operation on one limit's state.
///
/// An algorithm declines operations that it does not support, with
/// [`Decline::NotSupported`](crate::plan::answer::Decline::NotSupported).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Consume `cost` if it fits. Cost 0 writes nothing and is admitted iff cost 1 would be.
    Charge {
        /// Units to consume.
        cost: u64,
        /// Token of the lease that this charge creates. Only concurrency limits use it.
        token: Token,
    },
    /// Return the answer that a charge would get, and write nothing.
    Peek {
        /// Units to ask for.
        cost: u64,
    },
    /// Book consumption that has already happened. It never refuses: consumption may exceed the limit.
    ///
    /// Cost 0 writes nothing and reports the overdraft.
    Record {
        /// Units that were consumed.
        cost: u64,
    },
    /// Book consumption that has already happened in the quota period that starts at `start`. In another period it is
    /// declined. A rolling period begins there if none has begun since. Limits without periods book it as a record.
    RecordIn {
        /// Units that were consumed.
        cost: u64,
        /// First instant of the period.
        start: Time,
    },
    /// Book what is needed so that at most `remaining` units are left. A standby in this process follows the store's
    /// answers with it. Redis declines it.
    LeaveAtMost {
        /// Units that may be left.
        remaining: u64,
    },
    /// Return the units used and the units held, apart. It writes nothing.
    Usage,
    /// Take consumption back without a receipt, but not below zero.
    Credit {
        /// Units to take back, at most.
        cost: u64,
    },
    /// Give back what an earlier charge consumed, in place: the state keeps its instants, its lengths and its expiry.
    ///
    /// The limit of the item must have the numbers that charged. The mark of an extension gives back what the extension
    /// added, and leaves the reservation its end.
    Refund {
        /// Where the charge was recorded.
        mark: Mark,
        /// Units that it consumed.
        cost: u64,
        /// Units to give back, at most `cost`.
        amount: u64,
    },
    /// Extend a lease to a full lease length from now.
    Renew {
        /// The lease.
        token: Token,
    },
    /// End a lease.
    Release {
        /// The lease.
        token: Token,
    },
    /// Hold `cost` until it is settled, cancelled or expired.
    Reserve {
        /// Units to hold.
        cost: u64,
        /// Token of the reservation that this creates.
        token: Token,
        /// When it expires, counted from now.
        hold: Span,
    },
    /// Hold `more` units under an existing reservation, and let it end not before `hold` from now.
    ///
    /// 0 more units write nothing and are admitted iff 1 more unit would be.
    Extend {
        /// The reservation.
        token: Token,
        /// Units to add.
        more: u64,
        /// Its earliest end, counted from now.
        hold: Span,
    },
    /// Turn a reservation into consumption of `actual` units, which may be more or less than it held.
    Settle {
        /// The reservation.
        token: Token,
        /// Units that were really used.
        actual: u64,
    },
    /// Drop a reservation.
    Cancel {
        /// The reservation.
        token: Token,
    },
    /// Report the result of an attempt to a penalty.
    Report {
        /// The result.
        result: Report,
    },
    /// Delete the state. An administrator's operation.
    Reset {
        /// How long a store remembers the reset. Until then it declines receipts of earlier charges.
        receipt_life: Span,
    },
    /// Write what the ledger knows of a recorded account, if the store has no current state of it.
    Restore(Restore),
    /// Take over corrections and grants of a recorded account, if their number is higher.
    Extra(Extra),
    /// Correct the count of a recorded account, if it is in the same epoch and was not adjusted since.
    Adjust(Adjust),
}

impl Operation {
    /// Returns a charge that creates no lease.
    #[inline]
    pub const fn charge(cost: u64) -> Operation {
        Operation::Charge { cost, token: Token::NONE }
    }

    /// Returns the refund of a whole charge.
    pub const fn refund(mark: Mark, cost: u64) -> Operation {
        Operation::Refund { mark, cost, amount: cost }
    }

    /// Returns the token that it names, if it names one.
    pub const fn token(&self) -> Option<Token> {
        match *self {
            Operation::Charge { token, .. }
            | Operation::Renew { token }
            | Operation::Release { token }
            | Operation::Reserve { token, .. }
            | Operation::Extend { token, .. }
            | Operation::Settle { token, .. }
            | Operation::Cancel { token } => Some(token),
            Operation::Refund { mark: Mark::Held { token, .. }, .. } => Some(token),
            Operation::Peek { .. }
            | Operation::Record { .. }
            | Operation::RecordIn { .. }
            | Operation::Usage
            | Operation::LeaveAtMost { .. }
            | Operation::Credit { .. }
            | Operation::Refund { .. }
            | Operation::Report { .. }
            | Operation::Reset { .. }
            | Operation::Restore(_)
            | Operation::Extra(_)
            | Operation::Adjust(_) => None,
        }
    }

    /// Returns the cost for which it asks admission, or `None` if it is a follow-up.
    #[inline]
    pub const fn cost(&self) -> Option<u64> {
        match *self {
            Operation::Charge { cost, .. } | Operation::Peek { cost } | Operation::Reserve { cost, .. } => {
                Some(cost)
            }
            Operation::Extend { more, .. } => Some(more),
            _ => None,
        }
    }
}

/// The result of an attempt that a penalty guards.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Report {
    /// The attempt succeeded. Earlier failures are cleared.
    Success,
    /// The attempt failed. The wait grows.
    Failure,
}

/// The secret name of a lease or reservation, chosen at random by its owner. It proves ownership.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u128);

impl Token {
    /// The token of no lease and no reservation.
    pub const NONE: Token = Token(0);
}

impl fmt::Debug for Token {
    /// Prints the first bytes only, because a token is a credential.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}…", (self.0 >> 96) as u32)
    }
}

/// Where a charge was recorded, so that a follow-up can find it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mark {
    /// Nowhere: the cost was 0, or the algorithm has no refund.
    None,
    /// In the window, bucket or period that starts here.
    Window {
        /// Start of the window, bucket or period.
        start: Time,
    },
    /// At this effective instant.
    At {
        /// The instant.
        time: Time,
    },
    /// Under a token, until it expires.
    Held {
        /// The lease or reservation.
        token: Token,
        /// When it expires.
        until: Time,
    },
    /// On a plain counter.
    Counter,
}

impl Mark {
    /// Returns its kind and its numbers, as receipts and digests contain them.
    pub(crate) const fn to_words(self) -> (u8, [u64; 3]) {
        match self {
            Mark::None => (0, [0, 0, 0]),
            Mark::Window { start } => (1, [start.us(), 0, 0]),
            Mark::At { time } => (2, [time.us(), 0, 0]),
            Mark::Held { token, until } => (3, [until.us(), (token.0 >> 64) as u64, token.0 as u64]),
            Mark::Counter => (4, [0, 0, 0]),
        }
    }

    /// Returns the mark with this kind and these numbers.
    pub(crate) const fn from_words(kind: u8, words: [u64; 3]) -> Option<Mark> {
        let instant = Time::from_us(words[0]);
        Some(match kind {
            0 => Mark::None,
            1 => Mark::Window { start: instant },
            2 => Mark::At { time: instant },
            3 => {
                let token = Token((words[1] as u128) << 64 | words[2] as u128);
                Mark::Held { token, until: instant }
            }
            4 => Mark::Counter,
            _ => return None,
        })
    }

    /// Returns the operation that gives the charge back: release of a lease, cancellation of a reservation, or refund.
    pub const fn undo(self, cost: u64, limit: &Limit) -> Operation {
        self.undo_partial(cost, cost, limit)
    }

    /// Returns the operation that gives back up to `amount` units of the charge. A lease and a reservation are given back
    /// whole.
    pub const fn undo_partial(self, cost: u64, amount: u64, limit: &Limit) -> Operation {
        match (self, limit) {
            (Mark::Held { token, .. }, Limit::Concurrency(_)) => Operation::Release { token },
            (Mark::Held { token, .. }, _) => Operation::Cancel { token },
            (mark, _) => Operation::Refund { mark, cost, amount: if amount < cost { amount } else { cost } },
        }
    }
}
