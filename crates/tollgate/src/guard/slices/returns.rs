//! What an ended grant gives back to the store: its unspent units, once, by the numbers that booked them.

use std::sync::Arc;

use tollgate_core::plan::slice::SliceHold;
use tollgate_core::{Item, Key, Keyspace, Limit, Mark, Nonce, Operation, Plan, Span, Subject, Time};

/// How long after the end of its grant a return is accepted, and remembered.
const LATE_MAX: Span = Span::from_secs(10);

/// The key of a grant. It outlives the rule set that planned the check.
#[derive(Clone, Debug)]
pub(crate) struct Owner {
    keyspace: Arc<Keyspace>,
    tag: Subject,
    subject: Subject,
}

impl Owner {
    pub(crate) fn of(key: &Key<'_>) -> Owner {
        Owner { keyspace: Arc::new(key.keyspace().clone()), tag: key.tag(), subject: key.subject() }
    }

    pub(crate) fn key(&self) -> Key<'_> {
        self.keyspace.key_tagged(self.tag, self.subject)
    }
}

/// The unspent units of an ended grant.
#[derive(Clone, Debug)]
pub(super) struct Return {
    pub(super) owner: Owner,
    pub(super) limit: Limit,
    pub(super) hold: SliceHold,
    pub(super) mark: Mark,
    pub(super) charged: u64,
    pub(super) charged_at: Time,
    pub(super) unspent: u64,
}

impl Return {
    /// Returns the Plan that refunds them. The store declines it after a reset.
    pub(super) fn plan(&self, nonce: Nonce) -> Option<Plan<'_>> {
        let Return { owner, limit, mark, charged, unspent, .. } = self;
        let key = owner.key();
        let operation = Operation::Refund { mark: *mark, cost: *charged, amount: *unspent };
        let life = Span::from_us(self.hold.span().us() + LATE_MAX.us());
        let plan = Plan::returning(Item::new(key, *limit, operation), nonce, self.charged_at, life);
        debug_assert!(plan.is_ok(), "one refund is a valid Plan: {plan:?}");
        plan.ok()
    }
}
