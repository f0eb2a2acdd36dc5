//! What can be asked of a limit: the vocabulary of the seam between Plans and stores.

use std::fmt;

use crate::limit::Limit;
use crate::time::{Span, Time};

/// One request to one limit's state.
///
/// Every algorithm answers every operation: those it has no meaning for it declines, with
/// [`Decline::NotSupported`](crate::answer::Decline::NotSupported).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Take `cost` if it fits. Cost 0 writes nothing and is admitted iff cost 1 would be.
    Charge {
        /// How much.
        cost: u64,
        /// The lease this charge creates; only concurrency limits look at it.
        token: Token,
    },
    /// The answer a charge would get; writes nothing.
    Peek {
        /// How much.
        cost: u64,
    },
    /// Give back what an earlier charge took.
    Refund {
        /// Where the charge was booked.
        mark: Mark,
        /// How much it took.
        cost: u64,
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
    /// Hold `cost` until it is settled, cancelled or has expired.
    Reserve {
        /// How much.
        cost: u64,
        /// The reservation this creates.
        token: Token,
        /// How long it is held at most.
        hold: Span,
    },
    /// Turn a reservation into consumption of `actual`, which may be more or less than was held.
    Settle {
        /// The reservation.
        token: Token,
        /// What was really used.
        actual: u64,
    },
    /// Drop a reservation.
    Cancel {
        /// The reservation.
        token: Token,
    },
    /// Tell a penalty how the attempt went.
    Report {
        /// What happened.
        result: Report,
    },
    /// Forget the state (for administrators).
    Reset,
}

impl Operation {
    /// A charge that creates no lease.
    pub const fn charge(cost: u64) -> Operation {
        Operation::Charge { cost, token: Token::NONE }
    }

    /// The cost this operation asks to be admitted for; `None` if it does not ask for admission.
    pub const fn cost(&self) -> Option<u64> {
        match *self {
            Operation::Charge { cost, .. } | Operation::Peek { cost } | Operation::Reserve { cost, .. } => {
                Some(cost)
            }
            _ => None,
        }
    }
}

/// How an attempt guarded by a penalty went.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Report {
    /// It succeeded: earlier failures are forgotten.
    Success,
    /// It failed: the wait grows.
    Failure,
}

/// The unguessable name of a lease or reservation, chosen by its owner. Whoever has it is the owner.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u128);

impl Token {
    /// No lease and no reservation.
    pub const NONE: Token = Token(0);
}

impl fmt::Debug for Token {
    /// A token is a credential: logs get its first bytes only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}…", (self.0 >> 96) as u32)
    }
}

/// Where an admission was booked, so that a later operation can find it again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mark {
    /// Nothing was booked: cost 0, or an algorithm that takes nothing back.
    None,
    /// In the window, bucket or period that starts here.
    Window {
        /// Its first instant.
        start: Time,
    },
    /// At this effective instant.
    At {
        /// The instant.
        time: Time,
    },
    /// Under this token until then.
    Held {
        /// The lease or reservation.
        token: Token,
        /// When it ends by itself.
        until: Time,
    },
    /// On a plain counter.
    Counter,
}

impl Mark {
    /// The operation that gives back to `limit` what was booked here: release of a lease, cancel of a reservation, or
    /// refund.
    pub const fn undo(self, cost: u64, limit: &Limit) -> Operation {
        match (self, limit) {
            (Mark::Held { token, .. }, Limit::Concurrency(_)) => Operation::Release { token },
            (Mark::Held { token, .. }, _) => Operation::Cancel { token },
            (mark, _) => Operation::Refund { mark, cost },
        }
    }
}
