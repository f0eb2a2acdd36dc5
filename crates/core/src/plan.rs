//! A whole check as data, and what a store found for it.

pub mod evaluate;
pub mod operation;
pub mod receipt;
pub mod request_id;

use smallvec::SmallVec;

use crate::answer::{Answer, Decline, Verdict};
use crate::decision::OnFailure;
use crate::key::{Key, Subject};
use crate::limit::Limit;
use crate::plan::operation::{Mark, Operation, Token};
use crate::plan::request_id::RequestId;
use crate::time::{EXACT_MAX, Span, Time};

/// Few enough rules match one request that their items stay on the stack.
pub(crate) const INLINE: usize = 4;

/// One indivisible step on a store: either a check, whose items ask for admission all together, or a follow-up
/// on earlier admissions, whose items each stand for themselves. Valid by construction.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plan<'r> {
    items: SmallVec<[Item<'r>; INLINE]>,
    request: Option<RequestId>,
}

/// One operation on one key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Item<'r> {
    /// Whose state.
    pub key: Key<'r>,
    /// The limit in force.
    pub limit: Limit,
    /// What is asked of it.
    pub operation: Operation,
    /// Whether its refusal refuses the whole Plan. An item that does not block keeps its own books.
    pub blocking: bool,
    /// What to answer if the store cannot.
    pub on_failure: OnFailure,
    /// Where its rule stands in the rule set, for whoever reads the answer.
    pub rule_index: u32,
    /// Which of its rule's limits it is: 0 for the rule's own, otherwise that of the override at this place, from 1.
    pub variant: u32,
    /// Set for a subject that nobody vouches for. Once the rule has so many of them, further ones share the state of
    /// [`Subject::OVERFLOW`](crate::key::Subject::OVERFLOW).
    pub ip_subjects_max: Option<u32>,
}

/// An item that no Plan may hold.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PlanError {
    /// It could never be admitted.
    #[error("rule {rule:?}: cost {cost} is above the capacity {capacity}; it could never be admitted")]
    CostAboveCapacity {
        /// The rule.
        rule: String,
        /// The cost asked for.
        cost: u64,
        /// The largest cost the limit could ever admit.
        capacity: u64,
    },
    /// Not an exact integer on every host.
    #[error("rule {rule:?}: cost {cost} is above 2^53 - 1")]
    CostTooLarge {
        /// The rule.
        rule: String,
        /// The cost asked for.
        cost: u64,
    },
    /// A lease or reservation needs an owner.
    #[error("rule {rule:?}: a lease or reservation needs a token of its own")]
    TokenMissing {
        /// The rule.
        rule: String,
    },
    /// One key, one item.
    #[error("rule {rule:?}: the plan already has an item for this key")]
    DuplicateKey {
        /// The rule.
        rule: String,
    },
    /// A check and a follow-up are two Plans.
    #[error("rule {rule:?}: a plan either asks for admission or follows up on it, not both")]
    Mixed {
        /// The rule.
        rule: String,
    },
}

/// A [`PlanError`] before the rule is named, which takes an allocation.
enum ItemFault {
    CostAboveCapacity { cost: u64, capacity: u64 },
    CostTooLarge { cost: u64 },
    TokenMissing,
    DuplicateKey,
    Mixed,
}

impl ItemFault {
    #[cold]
    fn into_error(self, key: Key<'_>) -> PlanError {
        let rule = key.keyspace().rule().to_owned();
        match self {
            ItemFault::CostAboveCapacity { cost, capacity } => {
                PlanError::CostAboveCapacity { rule, cost, capacity }
            }
            ItemFault::CostTooLarge { cost } => PlanError::CostTooLarge { rule, cost },
            ItemFault::TokenMissing => PlanError::TokenMissing { rule },
            ItemFault::DuplicateKey => PlanError::DuplicateKey { rule },
            ItemFault::Mixed => PlanError::Mixed { rule },
        }
    }
}

impl<'r> Plan<'r> {
    /// A Plan without items: it admits.
    pub fn new() -> Plan<'r> {
        Plan::default()
    }

    /// Adds an item, or says why no store should ever see it.
    // Inlined, so that an item is made where it stays.
    #[inline(always)]
    pub fn push(&mut self, item: Item<'r>) -> Result<(), PlanError> {
        match self.fault(&item) {
            None => {
                self.items.push(item);
                Ok(())
            }
            Some(fault) => Err(fault.into_error(item.key)),
        }
    }

    /// Adds an item, unless there is one for its key: then the dearer of the two stays. Says which one it is now.
    pub fn push_or_merge(&mut self, item: Item<'r>) -> Result<usize, PlanError> {
        let same = |other: &Item<'r>| other.key.fingerprint() == item.key.fingerprint();
        let Some(at) = self.items.iter().position(same) else {
            self.push(item)?;
            return Ok(self.items.len() - 1);
        };
        if item.operation.cost() > self.items[at].operation.cost() {
            self.items[at] = item;
        }
        Ok(at)
    }

    /// Adds an item like the last one under another key.
    #[cold]
    pub(crate) fn push_last_under(&mut self, key: Key<'r>) -> Result<(), PlanError> {
        self.items.last().copied().map_or(Ok(()), |last| self.push(Item { key, ..last }))
    }

    #[inline(always)]
    fn fault(&self, item: &Item<'r>) -> Option<ItemFault> {
        let own = item.fault();
        if own.is_some() {
            return own;
        }
        if self.items.iter().any(|other| other.key.fingerprint() == item.key.fingerprint()) {
            return Some(ItemFault::DuplicateKey);
        }
        let mixed =
            self.items.first().is_some_and(|first| first.asks_for_admission() != item.asks_for_admission());
        mixed.then_some(ItemFault::Mixed)
    }

    /// Empties it.
    pub fn clear(&mut self) {
        self.items.clear();
        self.request = None;
    }

    /// Carries it out once, however often it is sent under this id. Everything else about it must be settled before.
    pub fn set_request_id(&mut self, id: Subject, horizon: Span, rules_version: u64) {
        self.request = Some(RequestId::new(id, horizon, rules_version, &self.items));
    }

    /// The id it is carried out under, if it has one.
    pub const fn request_id(&self) -> Option<&RequestId> {
        self.request.as_ref()
    }

    /// Turns its questions into ones that are answered without writing anything.
    pub fn peek(&mut self) {
        for item in &mut self.items {
            if let Some(cost) = item.operation.cost() {
                item.operation = Operation::Peek { cost };
            }
        }
    }

    /// Turns its questions into how things stand, whatever they were to cost.
    pub fn peek_status(&mut self) {
        for item in &mut self.items {
            item.operation = Operation::Peek { cost: 0 };
        }
    }

    /// Turns what quotas would count into something held for `hold` and settled later.
    pub fn reserve(&mut self, hold: Span) {
        for item in &mut self.items {
            if let (Limit::Quota(_), Operation::Charge { cost, token }) = (item.limit, item.operation) {
                item.operation = Operation::Reserve { cost, token, hold };
            }
        }
    }

    /// Those of its items that `keep` wants by their index, under the same request id.
    pub fn subset(&self, keep: impl Fn(usize) -> bool) -> Plan<'r> {
        let kept = self.items.iter().enumerate().filter(|(index, _)| keep(*index));
        Plan { items: kept.map(|(_, item)| *item).collect(), request: self.request }
    }

    /// The same without a request id.
    pub fn without_request_id(self) -> Plan<'r> {
        Plan { request: None, ..self }
    }

    /// The follow-up that takes back what this Plan booked, under the same request id.
    pub fn undo(&self, outcome: &Outcome) -> Plan<'r> {
        let booked = self.items.iter().zip(&outcome.answers);
        let items = booked.filter_map(|(item, answer)| {
            let cost = item.operation.cost().filter(|_| answer.mark != Mark::None)?;
            Some(Item { operation: answer.mark.undo(cost, &item.limit), ..*item })
        });
        Plan { items: items.collect(), request: self.request }
    }

    /// Its items, in the order of the rules file.
    pub fn items(&self) -> &[Item<'r>] {
        &self.items
    }
}

impl Item<'_> {
    /// Why no Plan may hold it, not even alone.
    #[inline]
    pub fn validate(&self) -> Result<(), PlanError> {
        self.fault().map_or(Ok(()), |fault| Err(fault.into_error(self.key)))
    }

    #[inline(always)]
    fn fault(&self) -> Option<ItemFault> {
        let asked = match self.operation {
            Operation::Refund { cost, .. } | Operation::Settle { actual: cost, .. } => cost,
            _ => self.operation.cost().unwrap_or(0),
        };
        if asked > EXACT_MAX {
            return Some(ItemFault::CostTooLarge { cost: asked });
        }
        if let Some(cost) = self.operation.cost() {
            let capacity = self.limit.capacity();
            // A rule in shadow may refuse for ever: that is what it is there to show.
            if cost > capacity && self.blocking {
                return Some(ItemFault::CostAboveCapacity { cost, capacity });
            }
        }
        let nameless = match self.operation {
            Operation::Charge { token, .. } => {
                matches!(self.limit, Limit::Concurrency(_)) && token == Token::NONE
            }
            Operation::Reserve { token, .. } => token == Token::NONE,
            _ => false,
        };
        nameless.then_some(ItemFault::TokenMissing)
    }
}

impl<'r> Item<'r> {
    /// An item that blocks, is closed on failure and belongs to no rule set.
    pub const fn new(key: Key<'r>, limit: Limit, operation: Operation) -> Item<'r> {
        let on_failure = OnFailure::Closed;
        Item {
            key,
            limit,
            operation,
            blocking: true,
            on_failure,
            rule_index: 0,
            variant: 0,
            ip_subjects_max: None,
        }
    }

    /// Whether it asks for admission.
    pub const fn asks_for_admission(&self) -> bool {
        self.operation.cost().is_some()
    }
}

/// What the store found, one answer per item, all from one indivisible step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// The store's clock at that step.
    pub now: Time,
    /// In the order of the Plan's items.
    pub answers: SmallVec<[Answer; INLINE]>,
}

impl Outcome {
    /// Whether it booked something: a refusal books nothing, nor does what costs nothing.
    pub fn took_effect(&self, plan: &Plan<'_>) -> bool {
        let mut booked = false;
        for (item, answer) in plan.items().iter().zip(&self.answers) {
            if item.asks_for_admission() && item.blocking && !answer.is_admitted() {
                return false;
            }
            booked |= match (item.operation, answer.verdict) {
                (_, Verdict::Done { .. }) => true,
                (
                    Operation::Charge { cost, .. } | Operation::Reserve { cost, .. },
                    Verdict::Admitted { .. },
                ) => cost > 0 && !matches!(item.limit, Limit::Penalty(_)),
                _ => false,
            };
        }
        booked
    }

    /// The first answer that could not be decided, if any.
    pub fn first_declined(&self) -> Option<(usize, Decline)> {
        self.answers.iter().enumerate().find_map(|(index, answer)| match answer.verdict {
            Verdict::Declined(why) => Some((index, why)),
            _ => None,
        })
    }
}
