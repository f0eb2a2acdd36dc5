//! Operations after a check: refund, renew, release, settle, cancel, report and reset.

use tollgate_core::rules::{Planned, Request};
use tollgate_core::{
    Decline, Item, Limit, Mark, Operation, Plan, PlanError, Receipt, Report, Store, StoreError, Token,
    Verdict,
};

use super::decision::Charge;
use super::{CheckError, Decision, Engine};

/// What one rule gave back after a refund, release, cancellation or settlement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Returned {
    /// The rule's id.
    pub rule: String,
    /// The units that the subject can use again, or why the rule gave nothing back.
    pub amount: Result<u64, Decline>,
}

impl<S: Store> Engine<S> {
    /// Gives back what an admission was charged. Refund a decision once: a second refund would give back the charges of
    /// others.
    pub async fn refund(&self, decision: &Decision) -> Result<Vec<Returned>, StoreError> {
        let plan = undo(decision);
        self.follow_up(&plan).await
    }

    /// Gives back by receipts. A rule that no longer exists, or that never gave such a receipt, declines.
    pub async fn refund_receipts(&self, receipts: &[Receipt]) -> Result<Vec<Returned>, StoreError> {
        self.by_receipts(receipts.iter(), Receipt::undo).await
    }

    /// Renews the leases among the receipts and ignores the others. A rule whose lease has ended declines. The amount is
    /// what the lease holds.
    pub async fn renew_receipts(&self, receipts: &[Receipt]) -> Result<Vec<Returned>, StoreError> {
        let renew = |receipt: &Receipt, _: &Limit| Operation::Renew { token: token(receipt) };
        self.by_receipts(leases(receipts), renew).await
    }

    /// Releases the leases among the receipts. What other rules were charged stays charged.
    pub async fn release_receipts(&self, receipts: &[Receipt]) -> Result<Vec<Returned>, StoreError> {
        let release = |receipt: &Receipt, _: &Limit| Operation::Release { token: token(receipt) };
        self.by_receipts(leases(receipts), release).await
    }

    async fn by_receipts(
        &self,
        receipts: impl Iterator<Item = &Receipt> + Send,
        operation: impl Fn(&Receipt, &Limit) -> Operation + Send,
    ) -> Result<Vec<Returned>, StoreError> {
        let active = self.inner.rules.load();
        let now = self.inner.store.now();
        let mut plan = Plan::new();
        let mut declined = Vec::new();
        for receipt in receipts {
            let item = active.rules.find(&receipt.rule).and_then(|(index, rule)| {
                let limit = rule.limit.at(now)?;
                let key = rule.keyspace.key_tagged(receipt.tag, receipt.subject);
                Some(Item { rule_index: index as u32, ..Item::new(key, limit, operation(receipt, &limit)) })
            });
            let taken = item.is_some_and(|item| plan.push(item).is_ok());
            if !taken {
                declined.push(Returned { rule: receipt.rule.clone(), amount: Err(Decline::NotHeld) });
            }
        }
        let mut returned = self.follow_up(&plan).await?;
        returned.append(&mut declined);
        Ok(returned)
    }

    /// Reports to penalty rules how an attempt ended. The amount is the number of failures on record. Rules of other
    /// kinds are left out.
    pub async fn report(&self, request: Request<'_>, result: Report) -> Result<Vec<Returned>, FollowUpError> {
        let mut returned = self.on_rules(request, Operation::Report { result }, |_| true).await?;
        returned.retain(|returned| returned.amount != Err(Decline::NotSupported));
        Ok(returned)
    }

    /// Deletes the consumption of the request's subjects under every rule that matches the request.
    pub async fn reset(&self, request: Request<'_>) -> Result<Vec<Returned>, FollowUpError> {
        self.reset_rules(request, |_| true).await
    }

    /// Like [`reset`](Engine::reset), under the matching rules whose id `is_reset` accepts.
    pub async fn reset_rules(
        &self,
        request: Request<'_>,
        is_reset: impl Fn(&str) -> bool + Send,
    ) -> Result<Vec<Returned>, FollowUpError> {
        self.on_rules(request, Operation::Reset, is_reset).await
    }

    async fn on_rules(
        &self,
        request: Request<'_>,
        operation: Operation,
        is_meant: impl Fn(&str) -> bool + Send,
    ) -> Result<Vec<Returned>, FollowUpError> {
        let active = self.inner.rules.load();
        // Nothing is charged: any cost and token that a Plan accepts will do.
        let request = Request { cost: 0, token: Token(1), ..request };
        let now = self.inner.store.now();
        let planned = active.rules.plan(&request, &self.inner.hashers, now)?;
        let Planned::Plan { plan: matched, .. } = planned else { return Ok(Vec::new()) };
        let mut plan = Plan::new();
        for item in matched.items().iter().filter(|item| is_meant(item.key.keyspace().rule())) {
            plan.push(Item { operation, ..*item })?;
        }
        Ok(self.follow_up(&plan).await?)
    }

    /// Settles a reservation: quotas count `actual` instead of the estimate, other rules give back what was too much,
    /// and leases are released.
    pub(crate) async fn settle(&self, decision: &Decision, actual: u64) -> Result<Vec<Returned>, StoreError> {
        let mut estimates = Vec::new();
        let plan = plan_of(decision, |receipt, limit| {
            let operation = match (receipt.mark, limit) {
                (Mark::Held { token, .. }, Limit::Quota(_)) => Operation::Settle { token, actual },
                (Mark::Held { token, .. }, _) => Operation::Release { token },
                (mark, _) if actual < receipt.cost => Operation::Refund { mark, cost: receipt.cost - actual },
                _ => return None,
            };
            estimates.push(receipt.cost);
            Some(operation)
        });
        let mut returned = self.follow_up(&plan).await?;
        for ((returned, item), estimate) in returned.iter_mut().zip(plan.items()).zip(estimates) {
            // A store answers a settlement with what it counts now; callers get what was given back.
            if let (Operation::Settle { .. }, Ok(counted)) = (item.operation, &mut returned.amount) {
                *counted = estimate.saturating_sub(*counted);
            }
        }
        Ok(returned)
    }

    /// Renews the leases of a decision. Returns whether all of them are still held.
    pub(crate) async fn renew(&self, decision: &Decision) -> Result<bool, StoreError> {
        let renewed = self.follow_up(&leases_of(decision, |token| Operation::Renew { token })).await?;
        Ok(renewed.iter().all(|renewed| renewed.amount.is_ok()))
    }

    /// Releases the leases of a decision.
    pub(crate) async fn release(&self, decision: &Decision) -> Result<Vec<Returned>, StoreError> {
        self.follow_up(&leases_of(decision, |token| Operation::Release { token })).await
    }

    /// Releases the leases of a decision without waiting for the store.
    pub(crate) fn release_unawaited(&self, decision: &Decision) {
        self.follow_up_unawaited(&leases_of(decision, |token| Operation::Release { token }));
    }

    /// Gives everything back without waiting for the store.
    pub(crate) fn refund_unawaited(&self, decision: &Decision) {
        self.follow_up_unawaited(&undo(decision));
    }

    /// Applies a follow-up without waiting for the store: guards do this when they are dropped.
    pub(super) fn follow_up_unawaited(&self, plan: &Plan<'_>) {
        if !plan.items().is_empty() {
            self.inner.store.apply_unawaited(plan);
        }
    }

    pub(super) async fn follow_up(&self, plan: &Plan<'_>) -> Result<Vec<Returned>, StoreError> {
        if plan.items().is_empty() {
            return Ok(Vec::new());
        }
        let outcome = self.inner.store.apply(plan).await?;
        let returned = plan.items().iter().zip(&outcome.answers).map(|(item, answer)| Returned {
            rule: item.key.keyspace().rule().to_owned(),
            amount: match answer.verdict {
                Verdict::Done { amount } => Ok(amount),
                Verdict::BookedLate { .. } => Err(Decline::BookedLate),
                Verdict::Declined(why) => Err(why),
                Verdict::Admitted { .. } | Verdict::Refused(_) => Err(Decline::NotSupported),
            },
        });
        Ok(returned.collect())
    }
}

/// A report or a reset failed.
#[derive(Debug, thiserror::Error)]
pub enum FollowUpError {
    /// The request is invalid under these rules.
    #[error(transparent)]
    Check(#[from] CheckError),
    /// The store failed. Whether it applied the operation is unknown.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<PlanError> for FollowUpError {
    fn from(error: PlanError) -> FollowUpError {
        FollowUpError::Check(error.into())
    }
}

/// The receipts of what is held under a token.
fn leases(receipts: &[Receipt]) -> impl Iterator<Item = &Receipt> {
    receipts.iter().filter(|receipt| receipt.token().is_some())
}

fn token(receipt: &Receipt) -> Token {
    receipt.token().unwrap_or(Token::NONE)
}

/// The Plan that takes back every charge of a decision.
pub(super) fn undo(decision: &Decision) -> Plan<'_> {
    plan_of(decision, |receipt, limit| Some(receipt.undo(limit)))
}

/// A Plan with what `operation` makes of each charge of a decision.
pub(super) fn plan_of(
    decision: &Decision,
    mut operation: impl FnMut(&Receipt, &Limit) -> Option<Operation>,
) -> Plan<'_> {
    let mut plan = Plan::new();
    for (Charge { rule, account, limit, .. }, receipt) in decision.charges().zip(decision.receipts()) {
        let Some(operation) = operation(&receipt, &limit) else { continue };
        let key = rule.keyspace.key_tagged(account.tag, account.subject);
        let pushed = plan.push(Item::new(key, limit, operation));
        debug_assert!(pushed.is_ok(), "what a Plan has charged, a Plan can take back: {pushed:?}");
    }
    plan
}

/// A Plan with one operation on each lease of a decision.
fn leases_of(decision: &Decision, operation: impl Fn(Token) -> Operation) -> Plan<'_> {
    plan_of(decision, |receipt, limit| match (receipt.mark, limit) {
        (Mark::Held { token, .. }, Limit::Concurrency(_)) => Some(operation(token)),
        _ => None,
    })
}
