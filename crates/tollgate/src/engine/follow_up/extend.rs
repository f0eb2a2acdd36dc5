//! Raises a reservation while its work goes on.

use std::time::Duration;

use tollgate_core::{
    Answer, Decline, Item, Limit, Mark, Nonce, Operation, Outcome, Plan, Receipt, Retry, Span, Store,
    StoreError, Time, Verdict,
};

use super::{Charge, FollowUpError, charge_of, opened, undo};
use crate::engine::{CheckError, Engine, nonces};

/// The answer to an extension of a reservation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Extension {
    /// Whether the reservation was raised. If not, it stays as it was.
    pub allowed: bool,
    /// Why the reservation can no longer be raised, if that is so: it has ended, or was settled or cancelled.
    pub declined: Option<Decline>,
    /// The answer of each rule that was asked.
    pub rules: Vec<RuleExtension>,
    /// The receipts that stand for the whole reservation from now on. Settle or cancel by them, not by earlier ones.
    ///
    /// A quota has one receipt, which carries everything that is held. Under another limit each extension is a separate
    /// charge. To bound their number, a rule has at most two receipts: one for the last extension, and one for
    /// everything before it, at the time of the first charge. So an extension that is followed by another one is given
    /// back as if it had been charged at the beginning: a bucket has drained more since then, and an earlier window may
    /// have ended. That gives back less, never more.
    ///
    /// The receipt of an extension that is followed by another one is closed, so that earlier receipts of the reservation
    /// do not give it back a second time. If the store does not confirm this, the receipt stays, as a third one.
    pub receipts: Vec<Receipt>,
    /// Whether the reservation was raised before under the same request id.
    pub replayed: bool,
}

/// One rule's answer to an extension.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RuleExtension {
    /// The rule's id.
    pub rule: String,
    /// Whether this rule alone admits the extension.
    pub allowed: bool,
    /// Whether this rule can refuse the extension. A shadow rule cannot.
    pub blocking: bool,
    /// The limit in units.
    pub limit: u64,
    /// Whole units that remain.
    pub remaining: u64,
    /// How long to wait before this rule admits the extension: zero if it does, `None` if waiting does not help.
    pub retry_after: Option<Duration>,
}

impl Extension {
    /// Returns an extension that asked no rule.
    pub(crate) const fn without_store(declined: Option<Decline>, receipts: Vec<Receipt>) -> Extension {
        Extension { allowed: declined.is_none(), declined, rules: Vec::new(), receipts, replayed: false }
    }

    /// The rule that refuses the extension; the one with the longest wait if there are several.
    pub fn refused_by(&self) -> Option<&RuleExtension> {
        let refusing = self.rules.iter().filter(|rule| rule.blocking && !rule.allowed);
        refusing.max_by_key(|rule| rule.retry_after.unwrap_or(Duration::MAX))
    }

    /// How long to wait before the extension is admitted. `None` if waiting does not help.
    pub fn retry_after(&self) -> Option<Duration> {
        if self.allowed { Some(Duration::ZERO) } else { self.refused_by()?.retry_after }
    }
}

impl<S: Store> Engine<S> {
    /// Holds `more` units under a reservation, all or none, and lets its holds end not before `hold` from now.
    ///
    /// Quotas raise what they hold, and other rules are charged, by the numbers under which the reservation was made.
    /// Rules that set the cost themselves, leases and queues are not asked again. A repeat under the same id changes
    /// nothing and gets the same answer.
    pub async fn extend_receipts(
        &self,
        receipts: &[Receipt],
        more: u64,
        hold: Span,
        id: Option<&str>,
    ) -> Result<Extension, FollowUpError> {
        let (accounts, unknown) = opened(receipts.iter());
        if !unknown.is_empty() {
            return Ok(Extension::without_store(Some(Decline::NotHeld), receipts.to_vec()));
        }
        let charges: Vec<Charge<'_>> = accounts.iter().map(charge_of).collect();
        let mut plan = Plan::new();
        for charge in &charges {
            let known = |item: &Item<'_>| item.key.fingerprint() == charge.key.fingerprint();
            if let Some(operation) = extension(charge, more, hold)
                && !plan.items().iter().any(known)
            {
                let item = Item::new(charge.key, charge.limit, operation);
                plan.push(Item { blocking: charge.blocking, ledger: charge.ledger, ..item })?;
            }
        }
        if plan.items().is_empty() {
            return Ok(Extension::without_store(None, receipts.to_vec()));
        }
        let drawn;
        let id = match id {
            Some(id) => id,
            None => {
                drawn = self.new_id();
                &drawn
            }
        };
        let hasher = self.inner.hashers.current();
        // No rule set is involved: the receipts say all.
        plan.set_request_id(hasher.subject([("extend", id)]), self.inner.horizon, 0);
        let outcome = match self.inner.store.apply(&plan).await {
            Ok(outcome) => outcome,
            Err(StoreError::IdReused) => return Err(CheckError::IdReused.into()),
            Err(error) => return Err(error.into()),
        };
        let nonce = nonces::nonce_of_request(hasher.subject([("nonce of an extension", id)]), outcome.now);
        let mut extension = conclude(&plan, &outcome, receipts);
        if extension.allowed {
            extension.receipts = self.raise_all(receipts, &charges, &plan, &outcome, nonce).await;
        }
        Ok(extension)
    }

    /// The receipts after an admitted extension.
    async fn raise_all(
        &self,
        receipts: &[Receipt],
        charges: &[Charge<'_>],
        plan: &Plan<'_>,
        outcome: &Outcome,
        nonce: Nonce,
    ) -> Vec<Receipt> {
        let mut raised = receipts.to_vec();
        for (item, answer) in plan.items().iter().zip(&outcome.answers) {
            if !answer.is_admitted() || answer.mark == Mark::None {
                continue;
            }
            let same = |charge: &Charge<'_>| charge.key.fingerprint() == item.key.fingerprint();
            let mut of_key = (0..charges.len()).filter(|index| same(&charges[*index]));
            let Some(first) = of_key.next() else { continue };
            let more = item.operation.cost().unwrap_or(0);
            if let Mark::Held { .. } = answer.mark {
                let receipt = &mut raised[first];
                (receipt.cost, receipt.mark) = (receipt.cost.saturating_add(more), answer.mark);
                continue;
            }
            for other in of_key {
                if let Some(left) = self.close(&charges[other]).await {
                    raised[first].cost = raised[first].cost.saturating_add(left);
                    raised[other].cost = 0;
                }
            }
            let (mark, charged_at) = (answer.mark, outcome.now);
            raised.push(Receipt { cost: more, mark, charged_at, nonce, ..raised[first].clone() });
        }
        raised.retain(|receipt| receipt.cost > 0);
        raised
    }

    /// Closes the receipt of an earlier extension: it gives nothing back from now on. Returns the units that it has not given
    /// back, or `None` if it may still give something back.
    async fn close(&self, charge: &Charge<'_>) -> Option<u64> {
        let plans = self.plans(std::iter::once(*charge), |charge| Some(undo(charge, 0)));
        // Without an answer it stays open. The next extension tries it again.
        let returned = self.follow_up_each(&plans).await.ok()?;
        match returned.first()?.amount {
            Ok(given) => Some(charge.cost.saturating_sub(given)),
            // It can never give anything back again.
            Err(Decline::ReceiptExpired | Decline::ResetSince) => Some(charge.cost),
            Err(_) => None,
        }
    }
}

/// The operation that raises a charge, if it can be raised.
fn extension(charge: &Charge<'_>, more: u64, hold: Span) -> Option<Operation> {
    match (charge.mark, charge.limit) {
        _ if charge.fixed_cost => None,
        (Mark::Held { token, .. }, Limit::Quota(_)) => Some(Operation::Extend { token, more, hold }),
        (Mark::Held { .. }, _) => None,
        _ => Some(Operation::charge(more)),
    }
}

/// The answer of the rules. The receipts are those of before.
fn conclude(plan: &Plan<'_>, outcome: &Outcome, receipts: &[Receipt]) -> Extension {
    let answered = || plan.items().iter().zip(&outcome.answers);
    let rules = answered().map(|(item, answer)| RuleExtension::new(item, answer, outcome.now)).collect();
    let declined = answered().find_map(|(item, answer)| match answer.verdict {
        // By the store's clock, the period of this reservation has ended.
        Verdict::Declined(Decline::Recompute { .. }) if item.blocking => Some(Decline::NotHeld),
        Verdict::Declined(why) if item.blocking => Some(why),
        _ => None,
    });
    let allowed = answered().all(|(item, answer)| answer.is_admitted() || !item.blocking);
    Extension { allowed, declined, rules, receipts: receipts.to_vec(), replayed: outcome.replayed }
}

impl RuleExtension {
    fn new(item: &Item<'_>, answer: &Answer, now: Time) -> RuleExtension {
        RuleExtension {
            rule: item.key.keyspace().rule().to_owned(),
            allowed: answer.is_admitted(),
            blocking: item.blocking,
            limit: answer.limit,
            remaining: answer.remaining,
            retry_after: match answer.verdict {
                Verdict::Refused(Retry::At(at)) => Some(Duration::from(at - now)),
                Verdict::Admitted { .. } => Some(Duration::ZERO),
                _ => None,
            },
        }
    }
}
