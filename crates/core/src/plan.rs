//! Plans: one check as data, and the Outcome that a store returns for it.

pub mod answer;
pub mod evaluate;
pub mod failure;
pub mod hold;
pub mod layers;
pub mod operation;
pub mod receipt;
pub mod recording;
pub mod request_id;
pub mod slice;

use smallvec::SmallVec;

use crate::decision::OnFailure;
use crate::key::{HoldKey, Key, Subject};
use crate::limit::Limit;
use crate::limit::part::Shard;
use crate::plan::answer::{Answer, Decline, Verdict};
use crate::plan::layers::Layers;
use crate::plan::operation::{Mark, Operation, Token};
use crate::plan::receipt::Nonce;
use crate::plan::recording::Recording;
use crate::plan::request_id::RequestId;
use crate::plan::slice::SliceHold;
use crate::stamped::Revision;
use crate::time::{EXACT_MAX, Span, Time};

/// Number of items that are stored inline. Most requests match no more rules than this.
pub(crate) const INLINE: usize = 4;

/// One check as data. A store applies it in one atomic step. Valid by construction.
///
/// A Plan is either a check or a follow-up. The items of a check ask for admission together: all are charged or none.
/// The items of a follow-up (record, refund, release, settle and so on) are independent of each other.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plan<'r> {
    items: SmallVec<[Item<'r>; INLINE]>,
    request_id: Option<RequestId>,
}

/// One operation on one key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Item<'r> {
    /// Names the subject's state.
    pub key: Key<'r>,
    /// The limit in force.
    pub limit: Limit,
    /// What to do.
    pub operation: Operation,
    /// Whether its refusal refuses the whole Plan. Items of shadow rules do not block.
    pub blocking: bool,
    /// What to answer if the store cannot decide.
    pub on_failure: OnFailure,
    /// Which layers may answer before the store is asked.
    pub layers: Layers,
    /// Index of its rule in the rule set.
    pub rule_index: u32,
    /// Which of its rule's limits it uses: 0 for the rule's own limit, n for that of the n-th override.
    pub variant: u32,
    /// Largest number of anonymous subjects that the rule counts separately. Set only if this item's subject is
    /// anonymous. Further subjects share the state of [`Subject::OVERFLOW`](crate::key::Subject::OVERFLOW).
    pub ip_subjects_max: Option<u32>,
    /// How long a server may spend a part of this limit that it has booked. `None` if the rule has no slices. The limit
    /// has its [margin](Limit::with_slice_margin).
    pub slices: Option<SliceHold>,
    /// How the ledger records its charges. `None` if it does not.
    pub ledger: Option<Recording>,
    /// Which part of the rule's limit this is. `None` if the rule is not sharded. Key and limit are those of the shard.
    pub shard: Option<Shard>,
    /// Whether the subject is anonymous: known only by its address. Its state in a remote store is kept without a margin.
    pub is_anonymous: bool,
}

/// Why an item cannot be part of a Plan.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PlanError {
    /// The limit could never admit this cost.
    #[error("rule {rule:?}: cost {cost} exceeds the capacity {capacity}; it could never be admitted")]
    CostAboveCapacity {
        /// The rule.
        rule: String,
        /// The requested cost.
        cost: u64,
        /// The largest cost that the limit could ever admit.
        capacity: u64,
    },
    /// Above the largest integer that every store computes exactly.
    #[error("rule {rule:?}: cost {cost} exceeds 2^53 - 1")]
    CostTooLarge {
        /// The rule.
        rule: String,
        /// The requested cost.
        cost: u64,
    },
    /// A lease or reservation has no token.
    #[error("rule {rule:?}: missing token; a lease or reservation needs a unique token")]
    TokenMissing {
        /// The rule.
        rule: String,
    },
    /// Two items with the same key.
    #[error("rule {rule:?}: duplicate key; the plan already has an item for it")]
    DuplicateKey {
        /// The rule.
        rule: String,
    },
    /// A rule counts the request that is not among the [permitted ones](crate::rules::Request::permitted_rules).
    #[error("rule {rule:?} counts this request and is not permitted; nothing was charged")]
    NotPermitted {
        /// The rule.
        rule: String,
    },
    /// The limit of a sharded rule has fewer units than shards, or cannot be divided.
    #[error("rule {rule:?}: its limit cannot be divided into {shards} shards")]
    NotDivisible {
        /// The rule.
        rule: String,
        /// The number of shards.
        shards: u64,
    },
    /// A check and a follow-up in one Plan.
    #[error("rule {rule:?}: mixed plan; send checks and follow-ups in separate plans")]
    Mixed {
        /// The rule.
        rule: String,
    },
}

/// A [`PlanError`] without the rule's name, which would need an allocation.
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
    /// Creates a Plan without items. It admits everything.
    pub fn new() -> Plan<'r> {
        Plan::default()
    }

    /// Creates a Plan of one item.
    pub fn of(item: Item<'r>) -> Result<Plan<'r>, PlanError> {
        let mut plan = Plan::new();
        plan.push(item)?;
        Ok(plan)
    }

    /// Adds an item if it is valid in this Plan.
    // Inlined so that the item is built in place.
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

    /// Adds an item, or keeps the one with the higher cost if the key already has one. Returns the item's index.
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

    /// Adds a copy of the last item under another key. The ledger records the first key only.
    #[cold]
    pub(crate) fn push_copy_of_last(&mut self, key: Key<'r>) -> Result<(), PlanError> {
        self.items.last().copied().map_or(Ok(()), |last| self.push(Item { key, ledger: None, ..last }))
    }

    #[inline(always)]
    fn fault(&self, item: &Item<'r>) -> Option<ItemFault> {
        let alone = item.fault();
        if alone.is_some() {
            return alone;
        }
        if self.items.iter().any(|other| other.key.fingerprint() == item.key.fingerprint()) {
            return Some(ItemFault::DuplicateKey);
        }
        let mixed =
            self.items.first().is_some_and(|first| first.asks_for_admission() != item.asks_for_admission());
        mixed.then_some(ItemFault::Mixed)
    }

    /// Counts items under other keys. `other` returns the key that replaces that of an item. Of several items that get the same
    /// key, the first stays.
    pub fn replace_keys(&mut self, mut other: impl FnMut(&Item<'r>) -> Option<Key<'r>>) {
        let mut replaced: SmallVec<[u128; INLINE]> = SmallVec::new();
        self.items.retain(|item| {
            let Some(key) = other(item) else { return true };
            item.key = key;
            item.ip_subjects_max = None;
            item.is_anonymous = false;
            let is_new = !replaced.contains(&key.fingerprint());
            if is_new {
                replaced.push(key.fingerprint());
            }
            is_new
        });
    }

    /// Removes all items and the request id.
    pub fn clear(&mut self) {
        self.items.clear();
        self.request_id = None;
    }

    /// Makes the Plan idempotent: a store applies it once, however often it is sent under this id.
    ///
    /// The id is bound to the items, so call this last.
    pub fn set_request_id(&mut self, id: Subject, horizon: Span, rules_version: u64) {
        self.request_id = Some(RequestId::new(id, horizon, rules_version, &self.items));
    }

    /// Returns the Plan that gives back one charge, once: a store remembers it for `life` under the receipt's nonce.
    ///
    /// `charged_at` is the store's time of the charge. The store declines a receipt that is older than `life`.
    pub fn returning(
        item: Item<'r>,
        nonce: Nonce,
        charged_at: Time,
        life: Span,
    ) -> Result<Plan<'r>, PlanError> {
        let mark = match item.operation {
            Operation::Refund { mark, .. } => mark,
            _ => Mark::None,
        };
        Plan::settling(item, mark, nonce, charged_at, life)
    }

    /// Returns the Plan that settles one charge, once: a refund of what was too much, a record of what was too little, or
    /// a credit of no units, which only closes the receipt. All have the id of the [return](Plan::returning), so that a charge is either returned or settled.
    pub fn settling(
        item: Item<'r>,
        mark: Mark,
        nonce: Nonce,
        charged_at: Time,
        life: Span,
    ) -> Result<Plan<'r>, PlanError> {
        let request_id = Some(RequestId::of_return(nonce, mark, charged_at, life, &item));
        Ok(Plan { request_id, ..Plan::of(item)? })
    }

    /// Returns the Plan that reads the answer to an earlier return of the same charge by another operation: by a refund if
    /// this Plan records, or by a record if it refunds or closes. It writes nothing. `None` if this Plan is no return.
    pub fn other_return(&self) -> Option<Plan<'r>> {
        let request_id = self.request_id.filter(|id| id.charged_at.is_some())?;
        let item = self.items.first()?;
        let operation = match item.operation {
            Operation::Refund { .. } | Operation::Credit { .. } => Operation::Record { cost: 0 },
            Operation::Record { .. } => Operation::Refund { mark: Mark::None, cost: 0, amount: 0 },
            _ => return None,
        };
        let request_id = Some(RequestId { content: request_id.content ^ request_id::RECORD, ..request_id });
        Some(Plan { request_id, ..Plan::of(Item { operation, ..*item }).ok()? })
    }

    /// Returns its request id, if it has one.
    pub const fn request_id(&self) -> Option<&RequestId> {
        self.request_id.as_ref()
    }

    /// Turns every item that asks for admission into a peek, which writes nothing.
    pub fn peek(&mut self) {
        for item in &mut self.items {
            if let Some(cost) = item.operation.cost() {
                item.operation = Operation::Peek { cost };
            }
        }
    }

    /// Turns every record into one of cost 0, which writes nothing.
    pub fn peek_records(&mut self) {
        for item in &mut self.items {
            if let Operation::Record { cost } = &mut item.operation {
                *cost = 0;
            }
        }
    }

    /// Turns every item into a peek of cost 0, which reads the limit's current numbers.
    pub fn peek_status(&mut self) {
        for item in &mut self.items {
            item.operation = Operation::Peek { cost: 0 };
        }
    }

    /// Turns charges of quotas into reservations that are held for `hold` and settled later.
    pub fn reserve(&mut self, hold: Span) {
        for item in &mut self.items {
            if let (Limit::Quota(_), Operation::Charge { cost, token }) = (item.limit, item.operation) {
                item.operation = Operation::Reserve { cost, token, hold };
            }
        }
    }

    /// Returns the same Plan, with the state of its recorded items under a [stamp](crate::stamped).
    pub fn stamped(&self) -> Plan<'r> {
        let mut plan = self.clone();
        for recording in plan.items.iter_mut().filter_map(|item| item.ledger.as_mut()) {
            recording.stamped = true;
        }
        plan
    }

    /// Returns the query for what its recorded subjects have used. It writes nothing.
    pub fn usage(&self) -> Plan<'r> {
        let recorded = self.items.iter().filter(|item| item.ledger.is_some());
        let items = recorded.map(|item| Item { operation: Operation::Usage, ..*item }).collect();
        Plan { items, request_id: None }
    }

    /// Returns the items whose index `keep` accepts, under the same request id.
    pub fn subset(&self, keep: impl Fn(usize) -> bool) -> Plan<'r> {
        let kept = self.items.iter().enumerate().filter(|(index, _)| keep(*index));
        Plan { items: kept.map(|(_, item)| *item).collect(), request_id: self.request_id }
    }

    /// Returns the same Plan without a request id.
    pub fn without_request_id(self) -> Plan<'r> {
        Plan { request_id: None, ..self }
    }

    /// Returns the follow-up that gives back what this Plan charged, under the same request id.
    pub fn undo(&self, outcome: &Outcome) -> Plan<'r> {
        let answered = self.items.iter().zip(&outcome.answers);
        let items = answered.filter_map(|(item, answer)| {
            let cost = item.operation.cost().filter(|_| answer.mark != Mark::None)?;
            let operation = match item.operation {
                // The reservation itself was there before.
                Operation::Extend { .. } => Operation::refund(answer.mark, cost),
                _ => answer.mark.undo(cost, &item.limit),
            };
            Some(Item { operation, ..*item })
        });
        Plan { items: items.collect(), request_id: self.request_id }
    }

    /// Whether it can change consumption. A Plan of peeks and usage cannot.
    pub fn may_charge(&self) -> bool {
        self.items.iter().any(|item| !matches!(item.operation, Operation::Peek { .. } | Operation::Usage))
    }

    /// Returns its items, in the order of the rules file.
    #[inline]
    pub fn items(&self) -> &[Item<'r>] {
        &self.items
    }
}

impl Item<'_> {
    /// Checks that a Plan with only this item would be valid.
    #[inline]
    pub fn validate(&self) -> Result<(), PlanError> {
        self.fault().map_or(Ok(()), |fault| Err(fault.into_error(self.key)))
    }

    #[inline(always)]
    fn fault(&self) -> Option<ItemFault> {
        let amount = match self.operation {
            Operation::Refund { cost, amount, .. } => cost.max(amount),
            Operation::Settle { actual, .. } => actual,
            Operation::Record { cost } | Operation::RecordIn { cost, .. } | Operation::Credit { cost } => {
                cost
            }
            _ => self.operation.cost().unwrap_or(0),
        };
        if amount > EXACT_MAX {
            return Some(ItemFault::CostTooLarge { cost: amount });
        }
        if let Some(cost) = self.operation.cost() {
            let capacity = self.limit.capacity();
            // A shadow rule may refuse every request: it exists to show that.
            if cost > capacity && self.blocking {
                return Some(ItemFault::CostAboveCapacity { cost, capacity });
            }
        }
        let lacks_token = match self.operation {
            Operation::Charge { token, .. } => {
                matches!(self.limit, Limit::Concurrency(_)) && token == Token::NONE
            }
            Operation::Reserve { token, .. } | Operation::Extend { token, .. } => token == Token::NONE,
            _ => false,
        };
        lacks_token.then_some(ItemFault::TokenMissing)
    }
}

impl<'r> Item<'r> {
    /// Creates a blocking item that fails closed and belongs to no rule set.
    pub const fn new(key: Key<'r>, limit: Limit, operation: Operation) -> Item<'r> {
        let on_failure = OnFailure::Closed;
        Item {
            key,
            limit,
            operation,
            blocking: true,
            on_failure,
            layers: Layers::NONE,
            rule_index: 0,
            variant: 0,
            ip_subjects_max: None,
            slices: None,
            ledger: None,
            shard: None,
            is_anonymous: false,
        }
    }

    /// Returns the key of the record of its lease or reservation, if it has one.
    pub fn hold_key(&self) -> Option<HoldKey<'r>> {
        self.limit.hold_token(&self.operation).map(|token| self.key.hold_key(token))
    }

    /// Whether the store keeps its state under a [stamp](crate::stamped).
    #[inline]
    pub const fn is_stamped(&self) -> bool {
        matches!(self.ledger, Some(Recording { stamped: true, .. }))
    }

    /// Whether it asks for admission: a charge, a peek, a reservation or its extension.
    pub const fn asks_for_admission(&self) -> bool {
        self.operation.cost().is_some()
    }
}

/// A store's answers to a Plan, one per item, all from one atomic step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// The store's time at that step.
    pub now: Time,
    /// The answers, in the order of the Plan's items.
    pub answers: SmallVec<[Answer; INLINE]>,
    /// Whether the store repeats what it answered before under the same request id.
    pub replayed: bool,
    /// The revisions of recorded accounts, by index of the item. Empty if the Plan has no recorded items; items after the
    /// last recorded one may be missing.
    pub revisions: Vec<Revision>,
}

impl Outcome {
    /// Whether the Plan changed consumption. A refusal and a cost of 0 change nothing.
    pub fn took_effect(&self, plan: &Plan<'_>) -> bool {
        let mut changed = false;
        for (item, answer) in plan.items().iter().zip(&self.answers) {
            // Then nothing of the Plan was written.
            if answer.verdict == Verdict::Declined(Decline::Unverified) {
                return false;
            }
            if item.asks_for_admission() && item.blocking && !answer.is_admitted() {
                return false;
            }
            changed |= match (item.operation, answer.verdict) {
                (_, Verdict::Done { .. } | Verdict::BookedLate { .. }) => true,
                (Operation::Record { cost } | Operation::RecordIn { cost, .. }, Verdict::Recorded { .. }) => {
                    cost > 0
                }
                (
                    Operation::Charge { cost, .. }
                    | Operation::Reserve { cost, .. }
                    | Operation::Extend { more: cost, .. },
                    Verdict::Admitted { .. },
                ) => cost > 0 && !matches!(item.limit, Limit::Penalty(_)),
                _ => false,
            };
        }
        changed
    }

    /// Returns the revision of the account of the item with this index; that of no account if it is not recorded.
    pub fn revision(&self, index: usize) -> Revision {
        self.revisions.get(index).copied().unwrap_or_default()
    }

    /// Returns the first declined item and the reason, if there is one.
    pub fn first_declined(&self) -> Option<(usize, Decline)> {
        self.answers.iter().enumerate().find_map(|(index, answer)| match answer.verdict {
            Verdict::Declined(why) => Some((index, why)),
            _ => None,
        })
    }
}
