//! What comes after a check: giving back, reporting, clearing.

use tollgate_core::rules::{Planned, Request};
use tollgate_core::{
    Decline, Item, Limit, Operation, Plan, PlanError, Receipt, Report, Store, StoreError, Token, Verdict,
};

use super::decision::Charge;
use super::{CheckError, Decision, Limiter, at_once};
use crate::clock::Clock;
use crate::store::memory::MemoryStore;

/// What one rule made of a follow-up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Returned {
    /// The rule's id.
    pub rule: String,
    /// How much it gave back, or why nothing.
    pub amount: Result<u64, Decline>,
}

impl<S: Store> Limiter<S> {
    /// Gives back what an admission was charged: the request was not carried out after all. Each rule gives back what it
    /// still counts. Give a decision back once: a second time would take what others were charged.
    pub async fn refund(&self, decision: &Decision) -> Result<Vec<Returned>, StoreError> {
        let plan = undo(decision);
        self.follow_up(&plan).await
    }

    /// Gives back by receipts, which may have been away over a wire. A rule that is gone, or that never gave such a
    /// receipt, declines.
    pub async fn refund_receipts(&self, receipts: &[Receipt]) -> Result<Vec<Returned>, StoreError> {
        self.by_receipts(receipts.iter(), Receipt::undo).await
    }

    /// Says by receipts that the work goes on, so that the leases among them do not run out. A rule that declines has let
    /// its lease end. Receipts of other charges are left out.
    pub async fn renew_receipts(&self, receipts: &[Receipt]) -> Result<Vec<Returned>, StoreError> {
        let renew = |receipt: &Receipt, _: &Limit| Operation::Renew { token: token(receipt) };
        self.by_receipts(leases(receipts), renew).await
    }

    /// Gives back by receipts the leases among them; what other rules were charged stays charged.
    pub async fn release_receipts(&self, receipts: &[Receipt]) -> Result<Vec<Returned>, StoreError> {
        let release = |receipt: &Receipt, _: &Limit| Operation::Release { token: token(receipt) };
        self.by_receipts(leases(receipts), release).await
    }

    async fn by_receipts(
        &self,
        receipts: impl Iterator<Item = &Receipt> + Send,
        operation: impl Fn(&Receipt, &Limit) -> Operation + Send,
    ) -> Result<Vec<Returned>, StoreError> {
        let in_force = self.inner.rules.load();
        let now = self.inner.store.now();
        let mut plan = Plan::new();
        let mut declined = Vec::new();
        for receipt in receipts {
            let item = in_force.rules.find(&receipt.rule).and_then(|(place, rule)| {
                let limit = rule.limit.at(now)?;
                let key = rule.keyspace.key_tagged(receipt.tag, receipt.subject);
                Some(Item { rule_index: place as u32, ..Item::new(key, limit, operation(receipt, &limit)) })
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

    /// Tells penalty rules how the request ended: a failure makes the next wait longer, a success clears the slate.
    /// Rules of other kinds do not care and are left out.
    pub async fn report<'a>(
        &self,
        request: impl Into<Request<'a>>,
        result: Report,
    ) -> Result<Vec<Returned>, FollowUpError> {
        let mut returned = self.on_every_rule(request.into(), Operation::Report { result }).await?;
        returned.retain(|returned| returned.amount != Err(Decline::NotSupported));
        Ok(returned)
    }

    /// Forgets what the request's subjects have consumed, under every rule that the request meets.
    pub async fn reset<'a>(&self, request: impl Into<Request<'a>>) -> Result<Vec<Returned>, FollowUpError> {
        self.on_every_rule(request.into(), Operation::Reset).await
    }

    async fn on_every_rule(
        &self,
        request: Request<'_>,
        operation: Operation,
    ) -> Result<Vec<Returned>, FollowUpError> {
        let in_force = self.inner.rules.load();
        // Nothing is charged, so neither the cost nor the token matters, as long as a Plan can be made with them.
        let request = Request { cost: 0, token: Token(1), ..request };
        let now = self.inner.store.now();
        let planned = in_force.rules.plan(&request, &self.inner.hashers, now)?;
        let Planned::Plan { plan: met, .. } = planned else { return Ok(Vec::new()) };
        let mut plan = Plan::new();
        for item in met.items() {
            plan.push(Item { operation, ..*item })?;
        }
        Ok(self.follow_up(&plan).await?)
    }

    /// Carries out a follow-up from where nothing can be awaited: a guard that is dropped.
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
                Verdict::Declined(why) => Err(why),
                Verdict::Admitted { .. } | Verdict::Refused(_) => Err(Decline::NotSupported),
            },
        });
        Ok(returned.collect())
    }
}

/// Memory answers at once, so nothing has to be awaited.
impl<C: Clock> Limiter<MemoryStore<C>> {
    /// [`refund`](Limiter::refund), without a runtime.
    pub fn refund_now(&self, decision: &Decision) -> Result<Vec<Returned>, StoreError> {
        at_once(self.refund(decision))
    }
}

/// A report or a reset that did not happen.
#[derive(Debug, thiserror::Error)]
pub enum FollowUpError {
    /// The request makes no sense under these rules.
    #[error(transparent)]
    Check(#[from] CheckError),
    /// The store could not carry it out, or did not say whether it did.
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
    operation: impl Fn(&Receipt, &Limit) -> Option<Operation>,
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
