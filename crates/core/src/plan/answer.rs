//! One limit's answer to one operation.

use crate::decision::exactness::Exactness;
use crate::limit::Limit;
use crate::plan::operation::Mark;
use crate::time::{Span, Time};

/// One limit's answer to one operation. A refusal never has `remaining` at or above the cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    /// Whether the request may proceed, or the result of the follow-up.
    pub verdict: Verdict,
    /// The limit in force: capacity, window limit, quota or lease count.
    pub limit: u64,
    /// Whole units left after this operation, rounded down.
    pub remaining: u64,
    /// When `remaining` is back to `limit` if no more requests arrive.
    pub reset_at: Time,
    /// Where the charge was recorded.
    pub mark: Mark,
    /// Who gave this answer.
    pub by: AnsweredBy,
}

/// Who gave an answer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AnsweredBy {
    /// The store.
    Store,
    /// The rule itself: it denies everything, or its required subject is missing.
    Rule,
    /// A part of the limit that this process had taken from the store before.
    Slice,
    /// A refusal of the store that this process remembers.
    Memory,
    /// A limiter in this process that many attempts have exhausted, so that the store was not asked.
    Prefilter,
    /// No layer: another rule of the Plan had refused before this one was asked.
    NotAsked,
    /// A failure policy, because the store could not answer.
    Policy(PolicyKind),
}

/// The kinds of failure policies.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PolicyKind {
    /// Refuses.
    Closed,
    /// Allows.
    Open,
    /// Allows and flags the decision.
    Degraded,
    /// A limiter in this process with a share of the rule's limit.
    Local,
    /// A token bucket in this process for the rule as a whole.
    Cap,
}

impl AnsweredBy {
    /// Returns how exact an answer under this limit is.
    #[inline]
    pub const fn exactness(self, limit: &Limit) -> Exactness {
        match self {
            AnsweredBy::Store => limit.exactness(),
            AnsweredBy::Rule | AnsweredBy::NotAsked => Exactness::Exact,
            AnsweredBy::Slice | AnsweredBy::Memory | AnsweredBy::Prefilter => {
                // As exact as the limit, but it may refuse earlier.
                match limit.exactness() {
                    Exactness::Exact => Exactness::Conservative,
                    other => other,
                }
            }
            AnsweredBy::Policy(PolicyKind::Closed) => Exactness::Conservative,
            AnsweredBy::Policy(PolicyKind::Local | PolicyKind::Cap) => Exactness::Bounded,
            AnsweredBy::Policy(PolicyKind::Open | PolicyKind::Degraded) => Exactness::Unbounded,
        }
    }

    /// Whether the answer has the numbers of a limit. Policies that always give the same answer have none.
    #[inline]
    pub const fn has_numbers(self) -> bool {
        match self {
            AnsweredBy::Store | AnsweredBy::Slice | AnsweredBy::Memory | AnsweredBy::Prefilter => true,
            AnsweredBy::Policy(kind) => matches!(kind, PolicyKind::Local | PolicyKind::Cap),
            AnsweredBy::Rule | AnsweredBy::NotAsked => false,
        }
    }

    /// Returns its name in decisions and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            AnsweredBy::Store => "store",
            AnsweredBy::Rule => "rule",
            AnsweredBy::Slice => "slice",
            AnsweredBy::Memory => "memory",
            AnsweredBy::Prefilter => "prefilter",
            AnsweredBy::NotAsked => "none",
            AnsweredBy::Policy(kind) => kind.name(),
        }
    }
}

impl PolicyKind {
    /// All kinds.
    pub const ALL: [PolicyKind; 5] =
        [PolicyKind::Closed, PolicyKind::Open, PolicyKind::Degraded, PolicyKind::Local, PolicyKind::Cap];

    /// Returns its name in rules, decisions and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            PolicyKind::Closed => "closed",
            PolicyKind::Open => "open",
            PolicyKind::Degraded => "degraded",
            PolicyKind::Local => "local",
            PolicyKind::Cap => "cap",
        }
    }
}

/// The result of an operation. A refusal is a value, not an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The request may proceed after `delay`, which is zero except for shapers.
    Admitted {
        /// How long to wait before proceeding.
        delay: Span,
    },
    /// The request may not proceed now.
    Refused(Retry),
    /// A follow-up took effect.
    Done {
        /// Units refunded, credited, released, settled or cancelled, or the number of failures on record.
        amount: u64,
    },
    /// Consumption that had already happened was booked.
    Recorded {
        /// Units booked: fewer than asked only if the count reached its cap.
        amount: u64,
        /// Units by which consumption now exceeds `limit`, rounded up.
        overdraft: u64,
        /// When a charge of one unit would be admitted if no other requests arrive, or the store's time if it would be
        /// now. For a shaper, when the recorded units may proceed.
        free_at: Time,
    },
    /// What a subject has used and holds. Nothing changed.
    Usage {
        /// Units consumed.
        used: u64,
        /// Units that leases or reservations hold.
        held: u64,
    },
    /// A settlement came after the end of its reservation. The units were booked, once, and nothing was held for them.
    BookedLate {
        /// Units booked.
        amount: u64,
    },
    /// The operation could not be applied. Nothing changed.
    Declined(Decline),
}

/// When a refused charge would be admitted if no other requests arrive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Retry {
    /// At this instant, and not one tick earlier.
    At(Time),
    /// Never: the cost exceeds the capacity.
    Never,
}

/// Why an operation was not applied.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum Decline {
    /// The algorithm does not support the operation.
    #[error("this algorithm does not support the operation")]
    NotSupported,
    /// Nothing is held under the receipt or token: it expired, was given back before, or never existed.
    #[error("nothing is held under this receipt or token: it has expired, was given back, or never existed")]
    NotHeld,
    /// The charge still counts, but too many newer entries follow it to refund it with bounded work.
    #[error("receipt is too old to refund: too many newer requests were charged since")]
    TooOld,
    /// The token already belongs to a live lease or reservation.
    #[error("duplicate token: a live lease or reservation already uses it; choose a new token for each")]
    TokenInUse,
    /// The store has no room for the record of one more lease or reservation.
    #[error("too many open leases or reservations; release, settle or cancel some first")]
    TooManyReservations,
    /// The store's time is outside the calendar periods of the Plan. Compute them again around `at`.
    #[error("the plan's calendar periods do not cover the store's time; compute them again")]
    Recompute {
        /// The instant that the periods must cover.
        at: Time,
    },
    /// The receipt is older than the time for which returns are remembered.
    #[error("receipt has expired: it is older than the receipt life")]
    ReceiptExpired,
    /// The subject was reset after the charge.
    #[error("the subject was reset after the charge")]
    ResetSince,
    /// The rule's window or period has changed, and later charges have converted the state.
    #[error("the window of the rule has changed since the charge")]
    WindowChanged,
    /// The reservation had ended before it was settled. The use was booked, and nothing was given back. Only callers of the
    /// library see this: a store answers [`Verdict::BookedLate`].
    #[error("the reservation had ended: its use was booked late, and nothing was given back")]
    BookedLate,
    /// The sum would exceed the largest exact integer.
    #[error("the counter would exceed 2^53 - 1")]
    Overflow,
    /// The rule is recorded, and the store has no state of the subject that it can trust: it must be restored first.
    #[error("the state of a recorded rule is not verified: it must be restored from the ledger")]
    Unverified,
}

impl Answer {
    /// Returns the answer of a rule that was not asked, because another rule of the Plan had refused before.
    pub const fn not_asked(limit: &Limit, now: Time) -> Answer {
        Answer {
            verdict: Verdict::Admitted { delay: Span::ZERO },
            limit: limit.reported_limit(),
            remaining: 0,
            reset_at: now,
            mark: Mark::None,
            by: AnsweredBy::NotAsked,
        }
    }

    /// Whether the verdict lets the request proceed.
    #[inline]
    pub const fn is_admitted(&self) -> bool {
        matches!(self.verdict, Verdict::Admitted { .. })
    }

    /// Whether the verdict refuses the request.
    pub const fn is_refused(&self) -> bool {
        matches!(self.verdict, Verdict::Refused(_))
    }
}
