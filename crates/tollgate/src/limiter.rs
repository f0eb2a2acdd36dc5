//! The limiter over any store.

mod builder;
mod local;
mod permit;
mod reservation;
mod store_adapter;

use std::time::Duration;

use smallvec::SmallVec;
use tollgate_core::{Receipt, Report, StoreError, SubjectHashers};

pub use crate::engine::{
    Account, AcquireError, Actual, BuildError, CheckError, Counted, Decision, ExplainedNumbers, Explanation,
    Extension, FollowUpError, InvalidReceipts, KeepAlive, Reason, Recorded, Returned, RuleDecision,
    RuleExplanation, RuleExtension, RuleRecord, RuleUsage,
};
pub use builder::{LimiterBuilder, LocalLimiterBuilder};
pub use local::LocalLimiter;
pub use permit::{LocalPermit, Permit};
pub use reservation::{LocalReservation, Reservation};

use crate::engine::Engine;
use crate::guard::Guarded;
use crate::request::Request;
use store_adapter::CustomStore;

/// Decides by rules, over a store that is chosen at run time. Cheap to clone: all clones share the rules and the store.
///
/// ```no_run
/// use tollgate::{HashKey, Limiter};
///
/// # async fn start() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = Limiter::builder()
///     .rules_file("rules.yaml")
///     .watch_rules(true)
///     .store("redis://localhost:6379")
///     .hash_key(HashKey::from_hex(0, &std::env::var("TOLLGATE_HASH_KEY")?)?)
///     .build()
///     .await?;
/// let decision = limiter.check([("action", "search"), ("api_key", "k-123")]).await?;
/// if !decision.allowed() {
///     println!("refused by {:?}; retry after {:?}", decision.rule(), decision.retry_after());
/// }
/// # Ok(()) }
/// ```
///
/// [`LocalLimiter`] is the same in one process, without `await`.
#[derive(Clone)]
pub struct Limiter {
    backing: Backing,
}

/// The engine, by the type of its store.
#[derive(Clone)]
enum Backing {
    Memory(LocalLimiter),
    #[cfg(feature = "redis")]
    Redis(Engine<Guarded<crate::store::redis::RedisStore>>),
    Custom(Engine<Guarded<CustomStore>>),
}

/// Evaluates the same expression with whichever engine there is.
macro_rules! with_engine {
    ($limiter:expr, $engine:ident => $value:expr) => {
        match &$limiter.backing {
            Backing::Memory(LocalLimiter { engine: $engine }) => $value,
            #[cfg(feature = "redis")]
            Backing::Redis($engine) => $value,
            Backing::Custom($engine) => $value,
        }
    };
}

impl Limiter {
    /// Starts with no rules and the memory store.
    pub fn builder() -> LimiterBuilder {
        LimiterBuilder::default()
    }

    /// Checks the request against every rule that matches it, and charges all of them if it is allowed. If one rule
    /// refuses, no rule is charged.
    ///
    /// A store that does not answer is not an error: the failure policy of each rule answers instead, and
    /// [`Decision::source`] says so.
    pub async fn check<'a>(&self, request: impl Into<Request<'a>>) -> Result<Decision, CheckError> {
        let request = request.into();
        match &self.backing {
            Backing::Memory(local) => local.engine.check_now(request.as_core()),
            #[cfg(feature = "redis")]
            Backing::Redis(engine) => engine.check(request.as_core()).await,
            Backing::Custom(engine) => engine.check(request.as_core()).await,
        }
    }

    /// Decides as [`check`](Limiter::check) does, and charges nothing. The numbers are those that a check would
    /// leave; a request of cost 0 shows those of now.
    pub async fn peek<'a>(&self, request: impl Into<Request<'a>>) -> Result<Decision, CheckError> {
        let request = request.into();
        with_engine!(self, engine => engine.peek(request.as_core()).await)
    }

    /// Checks several requests in one atomic step: either all of them are charged, or none.
    ///
    /// Requests of the same subject under the same rule are charged once, at the highest of their costs. Returns one
    /// decision for each request, in order. If any is refused, nothing was charged, also for those that are allowed.
    /// Request ids are ignored.
    pub async fn check_all(&self, requests: &[Request<'_>]) -> Result<Vec<Decision>, CheckError> {
        let requests: SmallVec<[_; 4]> = requests.iter().map(Request::as_core).collect();
        with_engine!(self, engine => engine.check_all(&requests).await)
    }

    /// Waits until the request is admitted, at most `within`, and then until its slot has come if a leaky-bucket queue
    /// booked one. The returned permit holds its leases.
    ///
    /// Returns [`AcquireError::TooLate`] as soon as it is certain that the wait would be too long; nothing is charged
    /// then. A caller that is alone checks at most twice. If several callers wait, the first one to check gets the
    /// admission, and the others wait again. Leases may be released at any moment, so a caller that waits for one checks
    /// at least ten times a second until the deadline.
    ///
    /// Dropping the future ends the wait. Before admission nothing has been charged. While it waits for its slot,
    /// everything is given back except the slot itself.
    ///
    /// Needs a tokio runtime with timers.
    pub async fn acquire<'a>(
        &self,
        request: impl Into<Request<'a>>,
        within: Duration,
    ) -> Result<Permit, AcquireError> {
        let request = request.into();
        let decision = with_engine!(self, engine => engine.acquire(request.as_core(), within).await)?;
        Ok(Permit::new(self.clone(), decision))
    }

    /// Checks as [`check`](Limiter::check) does. The returned permit holds the leases of concurrency limits and releases
    /// them when it is dropped. Look at [`Permit::allowed`] first: a refused permit holds nothing.
    pub async fn lease<'a>(&self, request: impl Into<Request<'a>>) -> Result<Permit, CheckError> {
        Ok(Permit::new(self.clone(), self.check(request).await?))
    }

    /// Checks as [`check`](Limiter::check) does, with the cost as an estimate. Quotas hold the estimate for at most
    /// `hold`, until [`Reservation::settle`] reports the actual cost.
    pub async fn reserve<'a>(
        &self,
        request: impl Into<Request<'a>>,
        hold: Duration,
    ) -> Result<Reservation, CheckError> {
        let request = request.into();
        let decision = with_engine!(self, engine => engine.reserve(request.as_core(), hold.into()).await)?;
        Ok(Reservation::new(self.clone(), decision, hold))
    }

    /// Gives back what the decision charged, because the request was not carried out. Returns what each rule gave back:
    /// at most what it still counts. A decision is refunded once: a second refund returns what the first gave back, and
    /// says so in [`already_returned`](Returned::already_returned).
    pub async fn refund(&self, decision: &Decision) -> Result<Vec<Returned>, StoreError> {
        with_engine!(self, engine => engine.refund(decision).await)
    }

    /// Gives back what the receipts were charged, also those of another process. Each receipt gives back once, by
    /// the numbers that charged it; its rule need not exist any more.
    pub async fn refund_receipts(&self, receipts: &[Receipt]) -> Result<Vec<Returned>, StoreError> {
        with_engine!(self, engine => engine.refund_receipts(receipts).await)
    }

    /// Gives back up to `amount` units under each rule, because the request did less than it was charged for. This closes
    /// the decision's receipts: what they did not give back stays charged. Leases and reservations are given back whole.
    pub async fn refund_partial(
        &self,
        decision: &Decision,
        amount: u64,
    ) -> Result<Vec<Returned>, StoreError> {
        with_engine!(self, engine => engine.refund_partial(decision, amount).await)
    }

    /// Gives back up to `amount` units by each receipt, as [`refund_partial`](Self::refund_partial) does.
    pub async fn refund_receipts_partial(
        &self,
        receipts: &[Receipt],
        amount: u64,
    ) -> Result<Vec<Returned>, StoreError> {
        with_engine!(self, engine => engine.refund_receipts_partial(receipts, amount).await)
    }

    /// Renews the leases among the receipts. Returns whether all of them are still held.
    pub async fn renew_receipts(&self, receipts: &[Receipt]) -> Result<bool, StoreError> {
        Ok(all_held(&with_engine!(self, engine => engine.renew_receipts(receipts).await)?))
    }

    /// Releases the leases among the receipts. What other rules were charged stays charged.
    pub async fn release_receipts(&self, receipts: &[Receipt]) -> Result<Vec<Returned>, StoreError> {
        with_engine!(self, engine => engine.release_receipts(receipts).await)
    }

    /// Books the cost of work that was already done under every rule that matches the request. It never refuses:
    /// consumption may exceed the limit, and later requests wait until it has come back.
    ///
    /// A request with an id is booked once, however often it is sent, for as long as the limiter remembers ids. Without
    /// one, the limiter draws an id for its own retries. Concurrency limits and penalties decline.
    pub async fn record<'a>(&self, request: impl Into<Request<'a>>) -> Result<Recorded, FollowUpError> {
        let request = request.into();
        with_engine!(self, engine => engine.record(request.as_core()).await)
    }

    /// Takes consumption back under every rule that matches the request, without a receipt: at most what the rule counts
    /// now. The amounts say by how much the counted consumption fell. Prefer [`refund`](Self::refund), which takes back
    /// only what was charged: after a credit, limits hold net of credits.
    ///
    /// A request with an id is credited once. Queues, concurrency limits and penalties decline.
    pub async fn credit<'a>(&self, request: impl Into<Request<'a>>) -> Result<Vec<Returned>, FollowUpError> {
        let request = request.into();
        with_engine!(self, engine => engine.credit(request.as_core()).await)
    }

    /// Holds `more` units under a reservation by its receipts, also one of another process: all rules or none. Its holds
    /// end not before `hold` from now. If it is refused, the reservation stays as it was. See [`Extension`].
    ///
    /// Give an id that is new for each extension, so that a repeat after a lost answer changes nothing. Without one, the
    /// limiter draws an id for its own retries.
    pub async fn extend_receipts(
        &self,
        receipts: &[Receipt],
        more: u64,
        hold: Duration,
        id: Option<&str>,
    ) -> Result<Extension, FollowUpError> {
        with_engine!(self, engine => engine.extend_receipts(receipts, more, hold.into(), id).await)
    }

    /// Settles a reservation by its receipts, also one of another process: quotas count the actual amount instead of the
    /// held sum, other rules give back what was too much or book what was too little, and leases are released. Settling
    /// again changes nothing.
    pub async fn settle_receipts(
        &self,
        receipts: &[Receipt],
        actual: impl Into<Actual>,
    ) -> Result<Vec<Returned>, StoreError> {
        let actual = actual.into();
        with_engine!(self, engine => engine.settle_receipts(receipts, &actual).await)
    }

    /// Cancels a reservation by its receipts: every rule gives back what it can, once.
    pub async fn cancel_receipts(&self, receipts: &[Receipt]) -> Result<Vec<Returned>, StoreError> {
        with_engine!(self, engine => engine.cancel_receipts(receipts).await)
    }

    /// Returns what the request's subjects have used under every rule that matches the request. Changes nothing. The
    /// cost of the request does not matter.
    pub async fn usage<'a>(&self, request: impl Into<Request<'a>>) -> Result<Vec<RuleUsage>, FollowUpError> {
        let request = request.into();
        with_engine!(self, engine => engine.usage(request.as_core()).await)
    }

    /// The [receipts](Decision::receipts) of a decision as one text; `None` if nothing can be given back. The text is
    /// sealed with the hash key: [`open_receipts`](Limiter::open_receipts) accepts it only unchanged.
    pub fn sealed_receipts(&self, decision: &Decision) -> Option<String> {
        with_engine!(self, engine => engine.sealed_receipts(decision))
    }

    /// The receipts in a text of [`sealed_receipts`](Limiter::sealed_receipts), of this limiter or another one with the
    /// same hash key.
    pub fn open_receipts(&self, sealed: &str) -> Result<Vec<Receipt>, InvalidReceipts> {
        with_engine!(self, engine => engine.open_receipts(sealed))
    }

    /// Reports how an attempt ended to the penalty rules that match the request: a failure makes the next wait longer, a
    /// success clears the failures. Returns the number of rules that recorded it.
    pub async fn report<'a>(
        &self,
        request: impl Into<Request<'a>>,
        result: Report,
    ) -> Result<usize, FollowUpError> {
        let request = request.into();
        Ok(applied(&with_engine!(self, engine => engine.report(request.as_core(), result).await)?))
    }

    /// Deletes the consumption of the request's subjects under every rule that matches the request. Returns the number
    /// of rules that were reset.
    pub async fn reset<'a>(&self, request: impl Into<Request<'a>>) -> Result<usize, FollowUpError> {
        let request = request.into();
        Ok(applied(&with_engine!(self, engine => engine.reset(request.as_core()).await)?))
    }

    /// Explains what [`check`](Limiter::check) would decide: every rule, every number and its reason. Charges nothing.
    /// Not for the hot path: the store is asked twice.
    ///
    /// A penalty that counts refused attempts would wait longer after a check than the explanation says.
    pub async fn explain<'a>(&self, request: impl Into<Request<'a>>) -> Explanation {
        let request = request.into();
        with_engine!(self, engine => engine.explain(request.as_core()).await)
    }

    /// Replaces the rules for every clone at once. Consumption stays. Invalid rules are reported with every problem, and
    /// the old rules stay in force.
    pub fn replace_rules(&self, yaml: &str) -> Result<(), BuildError> {
        with_engine!(self, engine => engine.replace_rules_source(crate::engine::yaml(yaml)))
    }

    /// How often the rules have been replaced.
    pub fn rules_version(&self) -> u64 {
        with_engine!(self, engine => engine.rules_version())
    }

    /// The hash keys that turn attribute values into subjects.
    pub fn hash_keys(&self) -> &SubjectHashers {
        with_engine!(self, engine => engine.hashers())
    }

    fn keep_alive(&self, decision: Decision) -> KeepAlive {
        with_engine!(self, engine => engine.keep_alive(decision))
    }

    async fn renew(&self, decision: &Decision) -> Result<bool, StoreError> {
        with_engine!(self, engine => engine.renew(decision).await)
    }

    async fn release(&self, decision: &Decision) -> Result<Vec<Returned>, StoreError> {
        with_engine!(self, engine => engine.release(decision).await)
    }

    fn release_unawaited(&self, decision: &Decision) {
        with_engine!(self, engine => engine.release_unawaited(decision));
    }

    async fn settle(&self, decision: &Decision, actual: &Actual) -> Result<Vec<Returned>, StoreError> {
        with_engine!(self, engine => engine.settle(decision, actual).await)
    }

    fn new_id(&self) -> String {
        with_engine!(self, engine => engine.new_id())
    }

    fn cancel_unawaited(&self, receipts: &[Receipt]) {
        with_engine!(self, engine => engine.cancel_receipts_unawaited(receipts));
    }

    fn refund_unawaited(&self, decision: &Decision) {
        with_engine!(self, engine => engine.refund_unawaited(decision));
    }
}

/// The limiter with the memory store of the local one: both share rules and consumption.
impl From<LocalLimiter> for Limiter {
    fn from(local: LocalLimiter) -> Limiter {
        Limiter { backing: Backing::Memory(local) }
    }
}

fn all_held(renewed: &[Returned]) -> bool {
    renewed.iter().all(|renewed| renewed.amount.is_ok())
}

fn applied(results: &[Returned]) -> usize {
    results.iter().filter(|result| result.amount.is_ok()).count()
}
