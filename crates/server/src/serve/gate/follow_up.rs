//! What follows a check, and charges after the fact.

use std::time::Instant;

use tollgate::Decision;
use tollgate::core::rules::Request;
use tollgate::core::{Algorithm, Receipt, Report, Span, StoreError};
use tollgate::engine::MeterSum;
use tollgate::limiter::{
    Actual, CheckError, Extension, FollowUpError, InvalidReceipts, Recorded, Returned, RuleUsage,
};

use super::{Backed, Edge, Gate, Origin};
use crate::serve::edge::auth::Caller;

impl Gate {
    /// Decides as [`check`](Gate::check) does; quotas hold the cost for at most `hold` instead of counting it.
    pub(crate) async fn reserve(
        &self,
        origin: impl Into<Origin<'_>>,
        request: Request<'_>,
        hold: Span,
    ) -> Result<Decision, CheckError> {
        let origin = origin.into();
        let began = Instant::now();
        let decided = either!(self, limiter => limiter.reserve(request, hold).await);
        let took = (!matches!(self.inner.limiter, Backed::Memory(_))).then(|| began.elapsed());
        self.inner.recorder.decided(&origin, &request, &decided, took, self.hashers());
        decided
    }

    /// Holds more under a reservation, all or none, until `hold` from now at least.
    pub(crate) async fn extend(
        &self,
        receipts: &[Receipt],
        more: u64,
        hold: Span,
        id: Option<&str>,
    ) -> Result<Extension, FollowUpError> {
        either!(self, limiter => limiter.extend_receipts(receipts, more, hold, id).await)
    }

    /// Books consumption that has happened, also beyond the limits.
    pub(crate) async fn record(&self, request: Request<'_>) -> Result<Recorded, FollowUpError> {
        either!(self, limiter => limiter.record(request).await)
    }

    /// Takes consumption back without a receipt.
    pub(crate) async fn credit(&self, request: Request<'_>) -> Result<Vec<Returned>, FollowUpError> {
        either!(self, limiter => limiter.credit(request).await)
    }

    /// Settles a reservation at what was really used.
    pub(crate) async fn settle(
        &self,
        receipts: &[Receipt],
        actual: &Actual,
    ) -> Result<Vec<Returned>, StoreError> {
        either!(self, limiter => limiter.settle_receipts(receipts, actual).await)
    }

    /// Gives back everything that a reservation holds or was charged.
    pub(crate) async fn cancel(&self, receipts: &[Receipt]) -> Result<Vec<Returned>, StoreError> {
        either!(self, limiter => limiter.cancel_receipts(receipts).await)
    }

    /// Returns what the subjects of the request have used under every rule that matches, and changes nothing.
    pub(crate) async fn usage(&self, request: Request<'_>) -> Result<Vec<RuleUsage>, FollowUpError> {
        either!(self, limiter => limiter.usage(request).await)
    }

    /// Adds to the meters that match, or to that of one rule: to all of them or to none.
    pub(crate) async fn add_to_meters(
        &self,
        request: Request<'_>,
        amount: u64,
        rule: Option<&str>,
    ) -> Result<MeterSum, FollowUpError> {
        either!(self, limiter => limiter.add_to_meters(request, amount, |id| rule.is_none_or(|rule| rule == id)).await)
    }

    /// Subtracts from the meters that match, or from that of one rule.
    pub(crate) async fn subtract_from_meters(
        &self,
        request: Request<'_>,
        amount: u64,
        rule: Option<&str>,
    ) -> Result<Vec<Returned>, FollowUpError> {
        let is_meant = |id: &str| rule.is_none_or(|rule| rule == id);
        either!(self, limiter => limiter.subtract_from_meters(request, amount, is_meant).await)
    }

    /// Receipts as one authenticated text; `None` without receipts.
    pub(crate) fn seal_receipts(&self, receipts: &[Receipt], caller: &Caller) -> Option<String> {
        either!(self, limiter => limiter.seal_receipts(receipts, caller.receipt_owner()))
    }

    /// Whether a rule with this id is a meter.
    pub(crate) fn is_meter(&self, id: &str) -> bool {
        self.with_rules(|rules| {
            let mut named = rules.rules().iter().filter(|rule| rule.keyspace.rule() == id);
            named.any(|rule| rule.limit.algorithm() == Some(Algorithm::Meter))
        })
    }

    /// Refunds up to `amount` units of what each of these receipts charged.
    pub(crate) async fn refund(
        &self,
        receipts: &[Receipt],
        amount: u64,
    ) -> Result<Vec<Returned>, StoreError> {
        either!(self, limiter => limiter.refund_receipts_partial(receipts, amount).await)
    }

    /// Renews the leases among these receipts.
    pub(crate) async fn renew(&self, receipts: &[Receipt]) -> Result<Vec<Returned>, StoreError> {
        either!(self, limiter => limiter.renew_receipts(receipts).await)
    }

    /// Releases the leases among these receipts.
    pub(crate) async fn release(&self, receipts: &[Receipt]) -> Result<Vec<Returned>, StoreError> {
        either!(self, limiter => limiter.release_receipts(receipts).await)
    }

    /// The receipts of a decision as one authenticated text; `None` if nothing can be refunded.
    pub(crate) fn seal(&self, decision: &Decision, caller: &Caller) -> Option<String> {
        either!(self, limiter => limiter.seal_receipts_of(decision, caller.receipt_owner()))
    }

    /// The receipts in a text that [`seal`](Gate::seal) wrote, if this caller may return them.
    pub(crate) fn open(&self, sealed: &str, caller: &Caller) -> Result<Vec<Receipt>, InvalidReceipts> {
        let (owner, receipts) = either!(self, limiter => limiter.open_receipts_of(sealed))?;
        if caller.may_return(owner) { Ok(receipts) } else { Err(InvalidReceipts) }
    }

    /// Reports the result of an attempt to penalty limits.
    pub(crate) async fn report(
        &self,
        request: Request<'_>,
        result: Report,
    ) -> Result<Vec<Returned>, FollowUpError> {
        either!(self, limiter => limiter.report(request, result).await)
    }

    /// Deletes the consumption of the subjects that this request would be charged to, under all rules or one of them, and
    /// logs who did it. Returns the rules; none if no rule matched.
    pub(crate) async fn reset(
        &self,
        edge: Edge,
        caller: &Caller,
        request: Request<'_>,
        rule: Option<&str>,
    ) -> Result<Vec<Returned>, FollowUpError> {
        // Over HTTP, the audit row was written before.
        if edge != Edge::Http {
            self.note_reset(edge, caller, &request, rule);
        }
        self.reset_rules((edge, caller), request, rule, |_| true).await
    }

    /// Deletes the consumption of the meters that match, or of the meter of one rule, and logs who did it.
    pub(crate) async fn reset_meters(
        &self,
        edge: (Edge, &Caller),
        request: Request<'_>,
        rule: Option<&str>,
    ) -> Result<Vec<Returned>, FollowUpError> {
        self.note_reset(edge.0, edge.1, &request, rule);
        self.reset_rules(edge, request, rule, |id| self.is_meter(id)).await
    }

    async fn reset_rules(
        &self,
        (edge, caller): (Edge, &Caller),
        request: Request<'_>,
        rule: Option<&str>,
        is_meant: impl Fn(&str) -> bool + Send + Sync,
    ) -> Result<Vec<Returned>, FollowUpError> {
        let is_reset = |id: &str| rule.is_none_or(|rule| rule == id) && is_meant(id);
        let reset = either!(self, limiter => limiter.reset_rules(request, is_reset).await);
        self.inner.recorder.reset(edge, caller.name(), &request, rule, &reset);
        reset
    }
}
