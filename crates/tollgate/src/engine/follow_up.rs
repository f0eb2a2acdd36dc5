//! Operations after a check: record, credit, refund, renew, release, extend, settle, cancel, report, reset and usage.

mod actual;
mod extend;
mod meters;
mod once;
mod record;
mod settle;
mod usage;

use std::future::poll_fn;
use std::task::Poll;

use tollgate_core::rules::Request;
use tollgate_core::{
    Answer, Decline, Item, Keyspace, Limit, Mark, Operation, Plan, PlanError, Receipt, Report, Store,
    StoreError, Token, Verdict,
};

use super::decision::Charge;
use super::{CheckError, Decision, Engine};
pub use actual::Actual;
pub use extend::{Extension, RuleExtension};
pub use meters::{MeterSum, MeterValue};
use once::one_per_subject;
pub(super) use once::{Answered, OnceId};
pub use record::{Recorded, RuleRecord};
pub use usage::RuleUsage;

/// Most items of a follow-up that travel in one Plan. A sharded rule has many.
const ITEMS_MAX: usize = 64;

/// What one rule gave back after a refund, release, cancellation or settlement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Returned {
    /// The rule's id.
    pub rule: String,
    /// The units that the subject can use again, or why the rule gave nothing back.
    pub amount: Result<u64, Decline>,
    /// Whether the charge was returned before. Then `amount` is what the rule gave back at that time.
    pub already_returned: bool,
    /// Units that a settlement booked in addition to what was held: more was used, or the hold had ended.
    pub recorded: u64,
}

impl Returned {
    fn new(item: &Item<'_>, answer: &Answer, replayed: bool) -> Returned {
        let (amount, recorded) = match answer.verdict {
            Verdict::Done { amount } => (Ok(amount), 0),
            Verdict::Recorded { amount, .. } => (Ok(0), amount),
            Verdict::BookedLate { amount } => (Err(Decline::BookedLate), amount),
            Verdict::Declined(why) => (Err(why), 0),
            Verdict::Usage { .. } | Verdict::Admitted { .. } | Verdict::Refused(_) => {
                (Err(Decline::NotSupported), 0)
            }
        };
        Returned { rule: item.key.keyspace().rule().to_owned(), amount, already_returned: replayed, recorded }
    }

    /// Adds the result of another receipt of the same reservation under the same rule.
    fn add(&mut self, other: &Returned) {
        self.amount = match (self.amount, other.amount) {
            (Ok(one), Ok(other)) => Ok(one.saturating_add(other)),
            (Err(_), Ok(given)) | (Ok(given), Err(_)) => Ok(given),
            (Err(why), Err(_)) => Err(why),
        };
        self.already_returned &= other.already_returned;
        self.recorded = self.recorded.saturating_add(other.recorded);
    }
}

impl<S: Store> Engine<S> {
    /// Gives back what an admission was charged, once.
    pub async fn refund(&self, decision: &Decision) -> Result<Vec<Returned>, StoreError> {
        self.refund_partial(decision, u64::MAX).await
    }

    /// Gives back up to `amount` units under each rule, once. Leases and reservations are given back whole.
    pub async fn refund_partial(
        &self,
        decision: &Decision,
        amount: u64,
    ) -> Result<Vec<Returned>, StoreError> {
        self.follow_up_each(&self.plans(decision.charges(), |charge| Some(undo(charge, amount)))).await
    }

    /// Gives back by receipts, once each, by the numbers that charged. The rules need not exist any more.
    pub async fn refund_receipts(&self, receipts: &[Receipt]) -> Result<Vec<Returned>, StoreError> {
        self.refund_receipts_partial(receipts, u64::MAX).await
    }

    /// Gives back up to `amount` units by each receipt, which closes the receipts.
    pub async fn refund_receipts_partial(
        &self,
        receipts: &[Receipt],
        amount: u64,
    ) -> Result<Vec<Returned>, StoreError> {
        self.by_receipts(receipts.iter(), |charge| undo(charge, amount)).await
    }

    /// Renews the leases among the receipts and ignores the others. A rule whose lease has ended declines. The amount is
    /// what the lease holds.
    pub async fn renew_receipts(&self, receipts: &[Receipt]) -> Result<Vec<Returned>, StoreError> {
        self.by_receipts(leases(receipts), |charge| Operation::Renew { token: token(charge.mark) }).await
    }

    /// Releases the leases among the receipts. What other rules were charged stays charged.
    pub async fn release_receipts(&self, receipts: &[Receipt]) -> Result<Vec<Returned>, StoreError> {
        self.by_receipts(leases(receipts), |charge| Operation::Release { token: token(charge.mark) }).await
    }

    async fn by_receipts<'r>(
        &self,
        receipts: impl Iterator<Item = &'r Receipt> + Send,
        operation: impl Fn(&Charge<'_>) -> Operation + Send,
    ) -> Result<Vec<Returned>, StoreError> {
        let (accounts, mut declined) = opened(receipts);
        let charges = accounts.iter().map(charge_of);
        let mut returned =
            self.follow_up_each(&self.plans(charges, |charge| Some(operation(charge)))).await?;
        returned.append(&mut declined);
        Ok(returned)
    }

    /// Reports to penalty rules how an attempt ended. The amount is the number of failures on record. Rules of other
    /// kinds are left out.
    pub async fn report(&self, request: Request<'_>, result: Report) -> Result<Vec<Returned>, FollowUpError> {
        let is_penalty = |item: &Item<'_>| matches!(item.limit, Limit::Penalty(_));
        self.on_rules(request, Operation::Report { result }, is_penalty).await
    }

    /// Deletes the consumption of the request's subjects under every rule that matches the request. Receipts of earlier
    /// charges are declined.
    pub async fn reset(&self, request: Request<'_>) -> Result<Vec<Returned>, FollowUpError> {
        self.reset_rules(request, |_| true).await
    }

    /// Like [`reset`](Engine::reset), under the matching rules whose id `is_reset` accepts.
    pub async fn reset_rules(
        &self,
        request: Request<'_>,
        is_reset: impl Fn(&str) -> bool + Send,
    ) -> Result<Vec<Returned>, FollowUpError> {
        let receipt_life = self.inner.receipt_life;
        let is_meant = move |item: &Item<'_>| is_reset(item.key.keyspace().rule());
        self.on_rules(request, Operation::Reset { receipt_life }, is_meant).await
    }

    async fn on_rules(
        &self,
        request: Request<'_>,
        operation: Operation,
        is_meant: impl Fn(&Item<'_>) -> bool + Send,
    ) -> Result<Vec<Returned>, FollowUpError> {
        let active = self.inner.rules.load();
        let now = self.inner.store.now();
        let mut matched = Plan::new();
        active.rules.plan_follow_up(&request, &self.inner.hashers, now, |_| operation, &mut matched)?;
        self.inner.store.place_subjects(&mut matched);
        let items = matched.items().iter().filter(|item| is_meant(item));
        let items: Vec<Item<'_>> = items.copied().collect();
        let plans: Result<Vec<Plan<'_>>, PlanError> = items
            .chunks(ITEMS_MAX)
            .map(|items| items.iter().try_fold(Plan::new(), |mut plan, item| plan.push(*item).map(|()| plan)))
            .collect();
        let returned = self.follow_up_each(&plans?).await?;
        let returned = items.iter().map(|item| (item.rule_index, item.shard)).zip(returned);
        Ok(one_per_subject(returned, Returned::add).into_iter().map(|(_, returned)| returned).collect())
    }

    /// Renews the leases of a decision. Returns whether all of them are still held.
    pub(crate) async fn renew(&self, decision: &Decision) -> Result<bool, StoreError> {
        let renewed =
            self.follow_up_each(&self.leases_of(decision, |token| Operation::Renew { token })).await?;
        Ok(renewed.iter().all(|renewed| renewed.amount.is_ok()))
    }

    /// Releases the leases of a decision.
    pub(crate) async fn release(&self, decision: &Decision) -> Result<Vec<Returned>, StoreError> {
        self.follow_up_each(&self.leases_of(decision, |token| Operation::Release { token })).await
    }

    /// Releases the leases of a decision without waiting for the store.
    pub(crate) fn release_unawaited(&self, decision: &Decision) {
        self.follow_up_unawaited(&self.leases_of(decision, |token| Operation::Release { token }));
    }

    /// Cancels a reservation by its receipts without waiting for the store.
    pub(crate) fn cancel_receipts_unawaited(&self, receipts: &[Receipt]) {
        let (accounts, _) = opened(receipts.iter());
        let charges = accounts.iter().map(charge_of);
        self.follow_up_unawaited(&self.plans(charges, |charge| Some(undo(charge, charge.cost))));
    }

    /// Gives everything back without waiting for the store.
    pub(crate) fn refund_unawaited(&self, decision: &Decision) {
        self.follow_up_unawaited(&self.plans(decision.charges(), |charge| Some(undo(charge, charge.cost))));
    }

    /// Returns a Plan with what `operation` makes of each charge. Each has its own, because each receipt is returned
    /// once, whichever others come with it.
    fn plans<'k>(
        &self,
        charges: impl Iterator<Item = Charge<'k>>,
        mut operation: impl FnMut(&Charge<'k>) -> Option<Operation>,
    ) -> Vec<Plan<'k>> {
        let plan = |charge: Charge<'k>| {
            let item = Item::new(charge.key, charge.limit, operation(&charge)?);
            let item = Item { ledger: charge.ledger, ..item };
            let plan = match item.operation {
                Operation::Refund { .. } | Operation::Record { .. } | Operation::Credit { .. } => {
                    Plan::settling(
                        item,
                        charge.mark,
                        charge.nonce,
                        charge.charged_at,
                        self.inner.receipt_life,
                    )
                }
                // The token of a lease or reservation identifies it.
                _ => Plan::of(item),
            };
            debug_assert!(plan.is_ok(), "what a Plan has charged, a Plan can take back: {plan:?}");
            plan.ok()
        };
        charges.filter_map(plan).collect()
    }

    /// Returns the Plans with one operation on each lease of a decision.
    fn leases_of<'d>(&self, decision: &'d Decision, operation: impl Fn(Token) -> Operation) -> Vec<Plan<'d>> {
        self.plans(decision.charges(), |charge| match (charge.mark, charge.limit) {
            (Mark::Held { token, .. }, Limit::Concurrency(_)) => Some(operation(token)),
            _ => None,
        })
    }

    /// Applies follow-ups without waiting for the store: guards do this when they are dropped.
    fn follow_up_unawaited(&self, plans: &[Plan<'_>]) {
        plans.iter().for_each(|plan| self.inner.store.apply_unawaited(plan));
    }

    /// Applies follow-ups at the same time and waits for all of them.
    async fn follow_up_each(&self, plans: &[Plan<'_>]) -> Result<Vec<Returned>, StoreError> {
        if let [plan] = plans {
            return self.follow_up(plan).await;
        }
        let returned = join_all(plans.iter().map(|plan| self.follow_up(plan))).await;
        returned.into_iter().try_fold(Vec::with_capacity(plans.len()), |mut all, returned| {
            all.append(&mut returned?);
            Ok(all)
        })
    }

    async fn follow_up(&self, plan: &Plan<'_>) -> Result<Vec<Returned>, StoreError> {
        if plan.items().is_empty() {
            return Ok(Vec::new());
        }
        let outcome = match (self.inner.store.apply(plan).await, plan.other_return()) {
            // The charge was returned before, by a refund instead of a record or the other way round.
            (Err(StoreError::IdReused), Some(other)) => self.inner.store.apply(&other).await?,
            (applied, _) => applied?,
        };
        let returned = plan.items().iter().zip(&outcome.answers);
        let returned = returned.map(|(item, answer)| Returned::new(item, answer, outcome.replayed));
        Ok(returned.collect())
    }
}

/// Polls all futures until each has its output. Few receipts come at once, so every future is polled each time.
async fn join_all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut pending: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    poll_fn(|context| {
        for (future, output) in &mut pending {
            if output.is_none()
                && let Poll::Ready(ready) = future.as_mut().poll(context)
            {
                *output = Some(ready);
            }
        }
        if pending.iter().all(|(_, output)| output.is_some()) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    pending.into_iter().filter_map(|(_, output)| output).collect()
}

/// A record, a credit, an extension, a report or a reset failed.
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

/// The receipts of leases. Reservations are held under a token too, and are settled instead.
fn leases(receipts: &[Receipt]) -> impl Iterator<Item = &Receipt> {
    receipts
        .iter()
        .filter(|receipt| receipt.token().is_some() && matches!(receipt.limit, Limit::Concurrency(_)))
}

fn token(mark: Mark) -> Token {
    match mark {
        Mark::Held { token, .. } => token,
        _ => Token::NONE,
    }
}

/// The keyspaces of receipts, and what the receipts without one get.
fn opened<'a>(receipts: impl Iterator<Item = &'a Receipt>) -> (Vec<(Keyspace, &'a Receipt)>, Vec<Returned>) {
    let (mut accounts, mut declined) = (Vec::new(), Vec::new());
    for receipt in receipts {
        match receipt.keyspace() {
            Ok(keyspace) => accounts.push((keyspace, receipt)),
            // Only a receipt that was not made by a limiter has such a name.
            Err(_) => declined.push(Returned {
                rule: receipt.rule.clone(),
                amount: Err(Decline::NotHeld),
                already_returned: false,
                recorded: 0,
            }),
        }
    }
    (accounts, declined)
}

/// The charge that a receipt proves.
const fn charge_of<'k>((keyspace, receipt): &'k (Keyspace, &Receipt)) -> Charge<'k> {
    Charge {
        key: keyspace.key_tagged(receipt.tag, receipt.subject),
        limit: receipt.limit,
        mark: receipt.mark,
        cost: receipt.cost,
        fixed_cost: receipt.fixed_cost,
        blocking: receipt.blocking,
        ledger: receipt.ledger,
        charged_at: receipt.charged_at,
        nonce: receipt.nonce,
    }
}

/// The operation that gives back up to `amount` units of a charge. Without units it only closes the receipt.
fn undo(charge: &Charge<'_>, amount: u64) -> Operation {
    match charge.mark {
        Mark::Held { .. } => charge.mark.undo_partial(charge.cost, amount, &charge.limit),
        // Some limits decline a refund of no units, and a return that was declined is not remembered.
        _ if amount == 0 => Operation::Credit { cost: 0 },
        mark => mark.undo_partial(charge.cost, amount, &charge.limit),
    }
}
