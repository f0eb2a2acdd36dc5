//! The limiter in one process.

use std::io;
use std::path::Path;
use std::time::Duration;

use smallvec::SmallVec;
use tollgate_core::{Receipt, Report, StoreError, SubjectHashers};

use super::{
    AcquireError, Actual, BuildError, CheckError, Decision, Explanation, Extension, FollowUpError,
    InvalidReceipts, LocalLimiterBuilder, LocalPermit, LocalReservation, Recorded, Returned, RuleUsage,
    all_held, applied,
};
use crate::clock::AnyClock;
use crate::engine::{Engine, poll_ready};
use crate::request::Request;
use crate::store::memory::{MemoryStore, RestoreError, Restored, Usage};

/// Decides by rules in one process, with the memory store. Nothing here waits, so nothing is `async` except
/// [`acquire`](LocalLimiter::acquire). Cheap to clone: all clones share the rules and the consumption.
///
/// ```
/// use tollgate::LocalLimiter;
///
/// let limiter = LocalLimiter::from_yaml("
///     version: 1
///     rules:
///       - { id: search-per-key, match: { action: search }, per: api_key, limit: { token-bucket: 2/s, burst: 5 } }
/// ")?;
/// let decision = limiter.check([("action", "search"), ("api_key", "k-123")])?;
/// assert!(decision.allowed());
/// assert_eq!(decision.remaining(), Some(4));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The methods return the same as those of [`Limiter`](crate::Limiter). The memory store itself does not fail.
#[derive(Clone)]
pub struct LocalLimiter {
    pub(super) engine: Engine<MemoryStore<AnyClock>>,
}

impl LocalLimiter {
    /// Creates a limiter with the rules of this YAML text. [`LocalLimiter::builder`] has more settings.
    pub fn from_yaml(rules: &str) -> Result<LocalLimiter, BuildError> {
        LocalLimiter::builder().rules_yaml(rules).build()
    }

    /// Starts with no rules, the system clock and room for ten million keys.
    pub fn builder() -> LocalLimiterBuilder {
        LocalLimiterBuilder::default()
    }

    /// Checks the request against every rule that matches it, and charges all of them if it is allowed. If one rule
    /// refuses, no rule is charged.
    #[inline]
    pub fn check<'a>(&self, request: impl Into<Request<'a>>) -> Result<Decision, CheckError> {
        let request = request.into();
        self.engine.check_now(request.as_core())
    }

    /// Decides as [`check`](LocalLimiter::check) does, and charges nothing. The numbers are those that a check
    /// would leave; a request of cost 0 shows those of now.
    #[inline]
    pub fn peek<'a>(&self, request: impl Into<Request<'a>>) -> Result<Decision, CheckError> {
        let request = request.into();
        self.engine.peek_now(request.as_core())
    }

    /// Checks several requests in one atomic step: either all of them are charged, or none. See
    /// [`Limiter::check_all`](crate::Limiter::check_all).
    pub fn check_all(&self, requests: &[Request<'_>]) -> Result<Vec<Decision>, CheckError> {
        let requests: SmallVec<[_; 4]> = requests.iter().map(Request::as_core).collect();
        poll_ready(self.engine.check_all(&requests))
    }

    /// Waits until the request is admitted, at most `within`. See [`Limiter::acquire`](crate::Limiter::acquire).
    ///
    /// Needs a tokio runtime with timers.
    pub async fn acquire<'a>(
        &self,
        request: impl Into<Request<'a>>,
        within: Duration,
    ) -> Result<LocalPermit, AcquireError> {
        let request = request.into();
        let decision = self.engine.acquire(request.as_core(), within).await?;
        Ok(LocalPermit::new(self.clone(), decision))
    }

    /// Checks as [`check`](LocalLimiter::check) does. The returned permit holds the leases of concurrency limits and
    /// releases them when it is dropped. Look at [`LocalPermit::allowed`] first: a refused permit holds nothing.
    pub fn lease<'a>(&self, request: impl Into<Request<'a>>) -> Result<LocalPermit, CheckError> {
        Ok(LocalPermit::new(self.clone(), self.check(request)?))
    }

    /// Checks as [`check`](LocalLimiter::check) does, with the cost as an estimate. Quotas hold the estimate for at most
    /// `hold`, until [`LocalReservation::settle`] reports the actual cost.
    pub fn reserve<'a>(
        &self,
        request: impl Into<Request<'a>>,
        hold: Duration,
    ) -> Result<LocalReservation, CheckError> {
        let request = request.into();
        let decision = poll_ready(self.engine.reserve(request.as_core(), hold.into()))?;
        Ok(LocalReservation::new(self.clone(), decision, hold))
    }

    /// Gives back what the decision charged, because the request was not carried out. Returns what each rule gave back:
    /// at most what it still counts. A decision is refunded once: a second refund returns what the first gave back, and
    /// says so in [`already_returned`](Returned::already_returned).
    pub fn refund(&self, decision: &Decision) -> Result<Vec<Returned>, StoreError> {
        poll_ready(self.engine.refund(decision))
    }

    /// Gives back what the receipts were charged. Each receipt gives back once, by
    /// the numbers that charged it; its rule need not exist any more.
    pub fn refund_receipts(&self, receipts: &[Receipt]) -> Result<Vec<Returned>, StoreError> {
        poll_ready(self.engine.refund_receipts(receipts))
    }

    /// Gives back up to `amount` units under each rule, because the request did less than it was charged for. This closes
    /// the decision's receipts: what they did not give back stays charged. Leases and reservations are given back whole.
    pub fn refund_partial(&self, decision: &Decision, amount: u64) -> Result<Vec<Returned>, StoreError> {
        poll_ready(self.engine.refund_partial(decision, amount))
    }

    /// Gives back up to `amount` units by each receipt, as [`refund_partial`](Self::refund_partial) does.
    pub fn refund_receipts_partial(
        &self,
        receipts: &[Receipt],
        amount: u64,
    ) -> Result<Vec<Returned>, StoreError> {
        poll_ready(self.engine.refund_receipts_partial(receipts, amount))
    }

    /// Renews the leases among the receipts. Returns whether all of them are still held.
    pub fn renew_receipts(&self, receipts: &[Receipt]) -> Result<bool, StoreError> {
        Ok(all_held(&poll_ready(self.engine.renew_receipts(receipts))?))
    }

    /// Releases the leases among the receipts. What other rules were charged stays charged.
    pub fn release_receipts(&self, receipts: &[Receipt]) -> Result<Vec<Returned>, StoreError> {
        poll_ready(self.engine.release_receipts(receipts))
    }

    /// Books the cost of work that was already done. It never refuses: consumption may exceed the limit. See
    /// [`Limiter::record`](crate::Limiter::record).
    pub fn record<'a>(&self, request: impl Into<Request<'a>>) -> Result<Recorded, FollowUpError> {
        let request = request.into();
        poll_ready(self.engine.record(request.as_core()))
    }

    /// Takes consumption back without a receipt, never below zero. See [`Limiter::credit`](crate::Limiter::credit).
    pub fn credit<'a>(&self, request: impl Into<Request<'a>>) -> Result<Vec<Returned>, FollowUpError> {
        let request = request.into();
        poll_ready(self.engine.credit(request.as_core()))
    }

    /// Holds `more` units under a reservation by its receipts, all rules or none. See
    /// [`Limiter::extend_receipts`](crate::Limiter::extend_receipts).
    pub fn extend_receipts(
        &self,
        receipts: &[Receipt],
        more: u64,
        hold: Duration,
        id: Option<&str>,
    ) -> Result<Extension, FollowUpError> {
        poll_ready(self.engine.extend_receipts(receipts, more, hold.into(), id))
    }

    /// Settles a reservation by its receipts. See [`Limiter::settle_receipts`](crate::Limiter::settle_receipts).
    pub fn settle_receipts(
        &self,
        receipts: &[Receipt],
        actual: impl Into<Actual>,
    ) -> Result<Vec<Returned>, StoreError> {
        poll_ready(self.engine.settle_receipts(receipts, &actual.into()))
    }

    /// Cancels a reservation by its receipts: every rule gives back what it can, once.
    pub fn cancel_receipts(&self, receipts: &[Receipt]) -> Result<Vec<Returned>, StoreError> {
        poll_ready(self.engine.cancel_receipts(receipts))
    }

    /// Returns what the request's subjects have used under every rule that matches the request. Changes nothing. The
    /// cost of the request does not matter.
    pub fn usage<'a>(&self, request: impl Into<Request<'a>>) -> Result<Vec<RuleUsage>, FollowUpError> {
        let request = request.into();
        poll_ready(self.engine.usage(request.as_core()))
    }

    /// The [receipts](Decision::receipts) of a decision as one text; `None` if nothing can be given back. The text is
    /// sealed with the hash key: [`open_receipts`](LocalLimiter::open_receipts) accepts it only unchanged.
    pub fn sealed_receipts(&self, decision: &Decision) -> Option<String> {
        self.engine.sealed_receipts(decision)
    }

    /// The receipts in a text of [`sealed_receipts`](LocalLimiter::sealed_receipts), of this limiter or another one with
    /// the same hash key.
    pub fn open_receipts(&self, sealed: &str) -> Result<Vec<Receipt>, InvalidReceipts> {
        self.engine.open_receipts(sealed)
    }

    /// Reports how an attempt ended to the penalty rules that match the request: a failure makes the next wait longer, a
    /// success clears the failures. Returns the number of rules that recorded it.
    pub fn report<'a>(
        &self,
        request: impl Into<Request<'a>>,
        result: Report,
    ) -> Result<usize, FollowUpError> {
        let request = request.into();
        Ok(applied(&poll_ready(self.engine.report(request.as_core(), result))?))
    }

    /// Deletes the consumption of the request's subjects under every rule that matches the request. Returns the number
    /// of rules that were reset.
    pub fn reset<'a>(&self, request: impl Into<Request<'a>>) -> Result<usize, FollowUpError> {
        let request = request.into();
        Ok(applied(&poll_ready(self.engine.reset(request.as_core()))?))
    }

    /// Explains what [`check`](LocalLimiter::check) would decide: every rule, every number and its reason. Charges
    /// nothing. Not for the hot path.
    ///
    /// A penalty that counts refused attempts would wait longer after a check than the explanation says.
    pub fn explain<'a>(&self, request: impl Into<Request<'a>>) -> Explanation {
        let request = request.into();
        poll_ready(self.engine.explain(request.as_core()))
    }

    /// Replaces the rules for every clone at once. Consumption stays. Invalid rules are reported with every problem, and
    /// the old rules stay in force.
    pub fn replace_rules(&self, yaml: &str) -> Result<(), BuildError> {
        self.engine.replace_rules_source(crate::engine::yaml(yaml))
    }

    /// How often the rules have been replaced.
    pub fn rules_version(&self) -> u64 {
        self.engine.rules_version()
    }

    /// The hash keys that turn attribute values into subjects.
    pub fn hash_keys(&self) -> &SubjectHashers {
        self.engine.hashers()
    }

    /// How many keys the memory store holds, and how many it can hold.
    pub fn keys(&self) -> Usage {
        self.engine.store().usage()
    }

    /// Removes all keys that have counted nothing for a minute, and returns their number. Checks remove some as they go;
    /// call this from a timer to free the memory of an idle limiter.
    pub fn sweep(&self) -> usize {
        self.engine.store().sweep()
    }

    /// Saves all consumption to a file, and returns the number of keys. The file is replaced as a whole. It is exact if no
    /// check runs meanwhile, as at shutdown.
    pub fn save(&self, path: impl AsRef<Path>) -> io::Result<usize> {
        self.engine.store().save(path)
    }

    /// Restores the consumption that [`save`](LocalLimiter::save) wrote. Keys that have consumption keep it. The limiter
    /// needs the hash key that it had then.
    pub fn restore(&self, path: impl AsRef<Path>) -> Result<Restored, RestoreError> {
        self.engine.store().load(path)
    }

    /// The engine behind this limiter.
    #[doc(hidden)]
    pub const fn engine(&self) -> &Engine<MemoryStore<AnyClock>> {
        &self.engine
    }
}
