//! What follows a check, and charges after the fact.

use std::time::Instant;

use tokio_util::sync::CancellationToken;
use tollgate::Decision;
use tollgate::core::rules::{Request, RuleSet};
use tollgate::core::{Algorithm, Receipt, Report, Span, StoreError};
use tollgate::engine::{Booking, MeterSum};
use tollgate::limiter::{
    Actual, CheckError, Extension, FollowUpError, InvalidReceipts, Recorded, Returned, RuleUsage,
};

use super::late_usage::{self, Usage};
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

    /// Gives units back for Envoy, which does not repeat a report: if the store is down, the report waits for it.
    pub(crate) async fn credit_later(&self, request: Request<'_>) -> Result<(), FollowUpError> {
        let (id, since) = (self.new_id(), Instant::now());
        match self.credit(request.id(&id)).await {
            Err(FollowUpError::Store(_)) => {
                self.inner.late_usage.add(Usage::Credit, id, &[request], since);
                Ok(())
            }
            credited => credited.map(drop),
        }
    }

    /// Checks one request. What Envoy reports under postpaid rules waits if the store is down.
    pub(super) async fn check_one(&self, edge: Edge, request: Request<'_>) -> Result<Decision, CheckError> {
        if !self.reports_usage(edge, &request) {
            return either!(self, limiter => limiter.check(request).await);
        }
        let (id, since) = (self.new_id(), Instant::now());
        let Booking { decided, is_booked } =
            either!(self, limiter => limiter.check_booking(request, &id).await);
        if !is_booked {
            self.inner.late_usage.add(Usage::Record, id, &[request], since);
        }
        decided
    }

    /// Checks several requests in one step. What Envoy reports under postpaid rules waits if the store is down.
    pub(super) async fn check_all(
        &self,
        edge: Edge,
        requests: &[Request<'_>],
    ) -> Result<Vec<Decision>, CheckError> {
        if !requests.iter().any(|request| self.reports_usage(edge, request)) {
            return either!(self, limiter => limiter.check_all(requests).await);
        }
        let (id, since) = (self.new_id(), Instant::now());
        let Booking { decided, is_booked } =
            either!(self, limiter => limiter.check_all_booking(requests, Some(&id)).await);
        if !is_booked {
            self.inner.late_usage.add(Usage::Record, id, requests, since);
        }
        decided
    }

    /// Whether a request may report what was used, by a caller that does not repeat it.
    fn reports_usage(&self, edge: Edge, request: &Request<'_>) -> bool {
        edge == Edge::Grpc
            && request.states_cost
            && request.id.is_none()
            && self.with_rules(RuleSet::has_postpaid)
    }

    fn new_id(&self) -> String {
        either!(self, limiter => limiter.new_id())
    }

    /// Books reports that wait for the store, until shutdown. What waits then is dropped.
    pub(crate) async fn book_late_usage(self, ending: CancellationToken) {
        loop {
            let is_ending = tokio::select! {
                () = ending.cancelled() => true,
                () = tokio::time::sleep(late_usage::EVERY) => false,
            };
            self.book_some_late_usage().await;
            if is_ending {
                while self.inner.late_usage.take().is_some() {
                    self.inner.late_usage.drop_one("the server was shut down");
                }
                return;
            }
        }
    }

    async fn book_some_late_usage(&self) {
        let late = &self.inner.late_usage;
        late.expire(Instant::now());
        for _ in 0..late_usage::SENT_AT_ONCE {
            // Nothing is sent to find out whether the store is up.
            if self.store_status().down_reason().is_some() {
                return;
            }
            let Some(report) = late.take() else { return };
            match self.book_report(&report).await {
                Ok(true) => late.note_booked(),
                Ok(false) => return late.put_back(report),
                Err(error) => late.drop_one(&error.to_string()),
            }
        }
    }

    /// Books a report under its id. Returns whether the store took it.
    async fn book_report(&self, report: &late_usage::Report) -> Result<bool, CheckError> {
        let attributes = report.attributes();
        let requests = report.requests(&attributes);
        if report.usage == Usage::Record {
            return either!(self, limiter => limiter.book_stated(&requests, &report.id).await);
        }
        for request in requests {
            match self.credit(request.id(&report.id)).await {
                Ok(_) => (),
                Err(FollowUpError::Store(_)) => return Ok(false),
                Err(FollowUpError::Check(error)) => return Err(error),
            }
        }
        Ok(true)
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
