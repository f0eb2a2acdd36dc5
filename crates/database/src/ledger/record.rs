//! What a server journals: one record per event of an account.

use std::fmt;
use std::sync::Arc;

/// A random 128-bit value: a writer, a token, a nonce, a hashed request id, or a hashed subject.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Id(pub [u8; 16]);

impl Id {
    /// Returns a new random id.
    pub fn random() -> Result<Id, crate::Error> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(crate::Error::Random)?;
        Ok(Id(bytes))
    }

    /// Reads what `Display` writes.
    pub fn from_hex(text: &str) -> Option<Id> {
        let digits = text.len() == 32 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
        let number = u128::from_str_radix(text, 16).ok().filter(|_| digits)?;
        Some(Id(number.to_be_bytes()))
    }
}

/// Writes 32 hexadecimal digits.
impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

/// One subject of one rule.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Subject {
    /// The rule.
    pub rule: Arc<str>,
    /// The hashed subject.
    pub id: Id,
}

/// What has a balance: a subject in one period.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Account {
    /// The subject.
    pub subject: Subject,
    /// Start of the period in microseconds since 1970; 0 for a meter without periods.
    pub period_us: i64,
}

/// One journaled event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// The account.
    pub account: Account,
    /// End of the account's period in microseconds since 1970.
    pub ends_us: i64,
    /// The limit of the rule that decided.
    pub allowance: i64,
    /// The store's time in microseconds since 1970.
    pub at_us: i64,
    /// Revision of the gate's state after the event.
    pub rev: i64,
    /// Whether the ledger keeps a row for this event.
    pub detail: Detail,
    /// The request id under which the event was answered.
    pub request: Option<Request>,
    /// The name of the account, if it is new to this server.
    pub name: Option<Arc<str>>,
    /// What happened.
    pub event: Event,
}

/// Whether rows are kept one by one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Detail {
    /// Every event is one row.
    Entries,
    /// Events of one batch, second, account and kind are folded into one row. Such events cannot be voided.
    Totals,
}

/// A request id, as the store remembered it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Hash of the caller's id.
    pub id: Id,
    /// Random value that the store drew with the first answer and returns with every replay.
    pub nonce: Id,
    /// Hash of what was asked under the id.
    pub content: i64,
}

/// What happened to an account.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A charge.
    Use {
        /// Units.
        cost: i64,
    },
    /// An admission by a failure policy, without the store.
    Local {
        /// Units.
        cost: i64,
    },
    /// A reservation.
    Reserve {
        /// The reservation.
        token: Id,
        /// Units held.
        cost: i64,
        /// End of the hold.
        until_us: i64,
    },
    /// More units for a reservation.
    Extend {
        /// The reservation.
        token: Id,
        /// Units added.
        more: i64,
        /// New end of the hold.
        until_us: i64,
    },
    /// The actual cost of a reservation.
    Settle {
        /// The reservation.
        token: Id,
        /// Units used.
        actual: i64,
        /// End of the hold. A settlement after it is late.
        until_us: i64,
    },
    /// A reservation given back.
    Cancel {
        /// The reservation.
        token: Id,
    },
    /// A reservation that ended unsettled.
    Expire {
        /// The reservation.
        token: Id,
    },
    /// Units given back for a receipt.
    Refund {
        /// The receipt.
        receipt: Id,
        /// What the receipt charged.
        charged: i64,
        /// Units to give back.
        amount: i64,
    },
    /// Units given back without a receipt.
    Credit {
        /// Units.
        amount: i64,
    },
    /// Consumption that existed before the rule was recorded.
    Opening {
        /// Units.
        used: i64,
    },
    /// Consumption moved from or to another period; negative in the old one.
    Carry {
        /// Units.
        used: i64,
    },
    /// Undoes what an earlier event of the same writer posted: its answer did not reach the client.
    Void {
        /// Sequence number of that event.
        seq: i64,
    },
    /// A correction of the allowance by an administrator. Only the database appends it.
    Correct(Change),
    /// An addition to the allowance. Only the database appends it.
    Grant(Change),
}

/// A change of what an account may use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// Units, negative to take away.
    pub units: i64,
    /// Who made the change.
    pub actor: String,
    /// Why.
    pub cause: String,
}

macro_rules! names {
    ($(#[$doc:meta])* $name:ident, $column:literal, { $($variant:ident = $text:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[expect(missing_docs, reason = "each variant is named after its text in the database")]
        pub enum $name { $($variant),* }

        impl $name {
            /// Every value.
            pub const ALL: &[$name] = &[$($name::$variant),*];

            /// Returns its name in the database.
            pub const fn name(self) -> &'static str {
                match self { $($name::$variant => $text),* }
            }

            pub(crate) fn parse(text: &str) -> Result<$name, crate::Error> {
                let found = $name::ALL.iter().find(|each| each.name() == text);
                found.copied().ok_or_else(|| crate::Error::Row { column: $column, value: text.to_owned() })
            }
        }
    };
}

names! {
    /// The kind of a posted entry.
    Kind, "kind", {
        Use = "use", Reserve = "reserve", Extend = "extend", Settle = "settle", Cancel = "cancel",
        Expire = "expire", Late = "late", Refund = "refund", Credit = "credit", Local = "local", Void = "void",
        Correct = "correct", Grant = "grant", Opening = "opening", Carry = "carry",
    }
}

names! {
    /// The state of a reservation.
    HoldState, "reservation.state", { Open = "open", Expired = "expired", Settled = "settled", Cancelled = "cancelled" }
}

names! {
    /// The state of a request id.
    RequestState, "request.state", { Held = "held", Shared = "shared", Void = "void" }
}

impl Record {
    /// Returns the kind of the entry.
    pub fn kind(&self) -> Kind {
        match &self.event {
            Event::Use { .. } => Kind::Use,
            Event::Local { .. } => Kind::Local,
            Event::Reserve { .. } => Kind::Reserve,
            Event::Extend { .. } => Kind::Extend,
            Event::Settle { until_us, .. } if self.at_us > *until_us => Kind::Late,
            Event::Settle { .. } => Kind::Settle,
            Event::Cancel { .. } => Kind::Cancel,
            Event::Expire { .. } => Kind::Expire,
            Event::Refund { .. } => Kind::Refund,
            Event::Credit { .. } => Kind::Credit,
            Event::Opening { .. } => Kind::Opening,
            Event::Carry { .. } => Kind::Carry,
            Event::Void { .. } => Kind::Void,
            Event::Correct(_) => Kind::Correct,
            Event::Grant(_) => Kind::Grant,
        }
    }

    /// Returns the reservation that the event belongs to.
    pub fn token(&self) -> Option<Id> {
        match &self.event {
            Event::Reserve { token, .. }
            | Event::Extend { token, .. }
            | Event::Settle { token, .. }
            | Event::Cancel { token }
            | Event::Expire { token } => Some(*token),
            _ => None,
        }
    }
}
