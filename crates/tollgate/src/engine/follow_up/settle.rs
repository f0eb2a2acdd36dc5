//! Ends reservations: settle the actual cost, or cancel.

use tollgate_core::{Limit, Mark, Operation, Receipt, Store, StoreError};

use super::{Actual, Charge, Returned, charge_of, opened, undo};
use crate::engine::{Decision, Engine};

impl<S: Store> Engine<S> {
    /// Settles a reservation. See [`settle_receipts`](Engine::settle_receipts).
    pub(crate) async fn settle(
        &self,
        decision: &Decision,
        actual: &Actual,
    ) -> Result<Vec<Returned>, StoreError> {
        self.settle_charges(decision.charges().collect(), actual).await
    }

    /// Settles a reservation by its receipts, once.
    ///
    /// Quotas count the actual amount instead of the held sum. Other rules give back what was too much, or book what was
    /// too little. Leases are released. If a hold has ended, its quota books the actual amount, once, and declines with
    /// [`Decline::BookedLate`](tollgate_core::Decline::BookedLate). Settling again changes nothing.
    pub async fn settle_receipts(
        &self,
        receipts: &[Receipt],
        actual: &Actual,
    ) -> Result<Vec<Returned>, StoreError> {
        let (accounts, mut declined) = opened(receipts.iter());
        let mut returned = self.settle_charges(accounts.iter().map(charge_of).collect(), actual).await?;
        returned.append(&mut declined);
        Ok(returned)
    }

    /// Cancels a reservation by its receipts, once: every rule gives back what it can.
    pub async fn cancel_receipts(&self, receipts: &[Receipt]) -> Result<Vec<Returned>, StoreError> {
        let (accounts, mut declined) = opened(receipts.iter());
        let charges: Vec<Charge<'_>> = accounts.iter().map(charge_of).collect();
        let operations: Vec<Operation> = charges.iter().map(|charge| undo(charge, charge.cost)).collect();
        let mut returned = self.end(&charges, &operations).await?;
        returned.append(&mut declined);
        Ok(returned)
    }

    async fn settle_charges(
        &self,
        charges: Vec<Charge<'_>>,
        actual: &Actual,
    ) -> Result<Vec<Returned>, StoreError> {
        let operations = settlements(&charges, actual);
        self.end(&charges, &operations).await
    }

    /// Applies one operation to each charge. Returns one result for each key: an extended charge has two receipts.
    async fn end(
        &self,
        charges: &[Charge<'_>],
        operations: &[Operation],
    ) -> Result<Vec<Returned>, StoreError> {
        let mut operations_left = operations.iter();
        let plans = self.plans(charges.iter().copied(), |_| operations_left.next().copied());
        let returned = self.follow_up_each(&plans).await?;
        let mut ended: Vec<(u128, Returned)> = Vec::new();
        for ((charge, operation), mut returned) in charges.iter().zip(operations).zip(returned) {
            // A store answers a settlement with what it counts now; callers get what was given back.
            if let (Operation::Settle { .. }, Ok(counted)) = (operation, &mut returned.amount) {
                returned.recorded = counted.saturating_sub(charge.cost);
                *counted = charge.cost.saturating_sub(*counted);
            }
            let key = charge.key.fingerprint();
            match ended.iter_mut().find(|(known, _)| *known == key) {
                Some((_, first)) => first.add(&returned),
                None => ended.push((key, returned)),
            }
        }
        Ok(ended.into_iter().map(|(_, returned)| returned).collect())
    }
}

/// The operation that settles each charge. Every receipt is closed, also by a refund of no units, so that a reservation
/// cannot be settled again at another amount.
fn settlements(charges: &[Charge<'_>], actual: &Actual) -> Vec<Operation> {
    let mut operations: Vec<Operation> = charges.iter().map(|charge| undo(charge, 0)).collect();
    for (index, charge) in charges.iter().enumerate() {
        let key = charge.key.fingerprint();
        let of_key: Vec<usize> =
            (0..charges.len()).filter(|index| charges[*index].key.fingerprint() == key).collect();
        if of_key.first() != Some(&index) {
            continue;
        }
        let held = of_key.iter().map(|index| charges[*index].cost).fold(0, u64::saturating_add);
        let amount = actual.of(charge.key.keyspace().rule(), held, charge.fixed_cost);
        match (charge.mark, charge.limit) {
            (Mark::Held { token, .. }, Limit::Quota(_)) => {
                operations[index] = Operation::Settle { token, actual: amount };
            }
            (Mark::Held { token, .. }, _) => operations[index] = Operation::Release { token },
            // The difference is booked under the id of the return, so it is booked once, or the charge is returned.
            _ if amount > held => operations[index] = Operation::Record { cost: amount - held },
            _ => {
                let mut too_much = held - amount;
                // The last extension first: most of it still counts.
                for &index in of_key.iter().rev() {
                    let part = too_much.min(charges[index].cost);
                    operations[index] = undo(&charges[index], part);
                    too_much -= part;
                }
            }
        }
    }
    operations
}
