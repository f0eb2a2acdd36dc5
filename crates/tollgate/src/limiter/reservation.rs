//! Quota held for work whose cost is known only afterwards.

use std::ops::Deref;

use tollgate_core::rules::Request;
use tollgate_core::{Limit, Mark, Operation, Span, Store, StoreError, Token};

use super::follow_up::{plan_of, undo};
use super::{CheckError, Decision, Intent, Limiter, Returned};

/// A decision that holds its cost under quota rules until it is settled. When it is dropped unsettled, everything that
/// can be given back is given back, under rules of every kind.
///
/// A refused one holds nothing: look at `allowed` first.
#[must_use = "dropping a reservation cancels it"]
pub struct Reservation<S: Store = crate::MemoryStore> {
    limiter: Limiter<S>,
    /// Taken when it is settled.
    decision: Option<Decision>,
}

impl<S: Store> Limiter<S> {
    /// [`check`](Limiter::check), with the cost as an estimate: quotas hold it, for at most `hold`, until
    /// [`Reservation::settle`] says what it came to.
    pub async fn reserve<'a>(
        &self,
        request: impl Into<Request<'a>>,
        hold: Span,
    ) -> Result<Reservation<S>, CheckError> {
        let mut request = request.into();
        if request.token == Token::NONE {
            request.token = self.inner.token_for(&request);
        }
        let decision = self.decide(self.inner.rules.load(), request, Intent::Reserve { hold }).await?;
        Ok(Reservation { limiter: self.clone(), decision: Some(decision) })
    }
}

impl<S: Store> Reservation<S> {
    /// The work is done and came to `actual`. Quotas count that instead of the estimate. Rules of other kinds were
    /// charged the estimate and give back what was too much; what was too little they do not learn of.
    pub async fn settle(mut self, actual: u64) -> Result<Vec<Returned>, StoreError> {
        let Some(decision) = self.decision.take() else { return Ok(Vec::new()) };
        let plan = plan_of(&decision, |receipt, limit| match (receipt.mark, limit) {
            (Mark::Held { token, .. }, Limit::Quota(_)) => Some(Operation::Settle { token, actual }),
            (Mark::Held { token, .. }, _) => Some(Operation::Release { token }),
            (mark, _) if actual < receipt.cost => {
                Some(Operation::Refund { mark, cost: receipt.cost - actual })
            }
            _ => None,
        });
        self.limiter.follow_up(&plan).await
    }

    /// The work was not done. Says what was given back.
    pub async fn cancel(mut self) -> Result<Vec<Returned>, StoreError> {
        let Some(decision) = self.decision.take() else { return Ok(Vec::new()) };
        self.limiter.follow_up(&undo(&decision)).await
    }
}

impl<S: Store> Deref for Reservation<S> {
    type Target = Decision;

    fn deref(&self) -> &Decision {
        self.decision.as_ref().expect("a reservation has its decision until it is consumed")
    }
}

impl<S: Store> Drop for Reservation<S> {
    fn drop(&mut self) {
        if let Some(decision) = self.decision.take() {
            self.limiter.follow_up_unawaited(&undo(&decision));
        }
    }
}
