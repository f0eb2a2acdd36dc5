//! What every transport asks: the limiter, on whatever store there is. Every answer is recorded here and nowhere else.

use std::sync::Arc;
use std::time::Instant;

use tollgate::core::rules::{Request, RuleSet};
use tollgate::core::{
    Answer, Item, Keyspace, Limit, Operation, Plan, PlanError, Receipt, Report, Store, StoreError,
    SubjectHashers, Time,
};
use tollgate::engine::Engine;
use tollgate::limiter::{BuildError, CheckError, Explanation, FollowUpError, InvalidReceipts, Returned};
use tollgate::store::redis::RedisStore;
use tollgate::{Decision, MemoryStore};
use tollgate_document::Source;

use super::observe::{Exposition, Kind, Recorder, Watched};
use super::store_status::StoreStatus;

/// Cheap to clone; all clones are one.
#[derive(Clone)]
pub(crate) struct Gate {
    inner: Arc<Inner>,
}

struct Inner {
    limiter: Backed,
    recorder: Recorder,
    /// Where the keys of callers who bring their own limits are counted, beside those of all rules.
    own_limits: Keyspace,
}

/// The limiter, by the store behind it.
pub(crate) enum Backed {
    /// Answers at once.
    Memory(Engine<MemoryStore>),
    /// Answers after a round trip.
    Redis(Engine<Watched<RedisStore>>),
}

/// Which way a question came in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Edge {
    Http,
    Authorize,
    Resp,
    Grpc,
}

impl Edge {
    pub(crate) const ALL: [Edge; 4] = [Edge::Http, Edge::Authorize, Edge::Resp, Edge::Grpc];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Edge::Http => "http",
            Edge::Authorize => "authorize",
            Edge::Resp => "resp",
            Edge::Grpc => "grpc",
        }
    }
}

/// Where a question comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin<'a> {
    pub(crate) edge: Edge,
    /// The caller's place in a trace, as its header says it.
    pub(crate) traceparent: Option<&'a str>,
}

impl From<Edge> for Origin<'_> {
    fn from(edge: Edge) -> Self {
        Origin { edge, traceparent: None }
    }
}

/// Why a caller's own limit was not decided.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ThrottleError {
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the store gave no answer; ask again")]
    Unanswered,
}

/// What came of one operation under a caller's own limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Throttled {
    /// When it was decided, by the store's clock.
    pub(crate) now: Time,
    pub(crate) answer: Answer,
}

/// The same expression on either limiter.
macro_rules! either {
    ($gate:expr, $limiter:ident => $what:expr) => {
        match &$gate.inner.limiter {
            Backed::Memory($limiter) => $what,
            Backed::Redis($limiter) => $what,
        }
    };
}

impl Gate {
    pub(crate) fn new(limiter: Backed, recorder: Recorder, own_limits: Keyspace) -> Gate {
        Gate { inner: Arc::new(Inner { limiter, recorder, own_limits }) }
    }

    /// [`check`](Gate::check), unless the store has to be waited for.
    pub(crate) fn check_now<'o>(
        &self,
        origin: impl Into<Origin<'o>>,
        request: Request<'_>,
    ) -> Option<Result<Decision, CheckError>> {
        let Backed::Memory(limiter) = &self.inner.limiter else { return None };
        let decided = limiter.check_now(request);
        self.inner.recorder.decided(&origin.into(), &request, &decided, None, limiter.hashers());
        Some(decided)
    }

    /// May this proceed? If so, it is charged.
    pub(crate) async fn check<'o>(
        &self,
        origin: impl Into<Origin<'o>>,
        request: Request<'_>,
    ) -> Result<Decision, CheckError> {
        let origin = origin.into();
        let limiter = match &self.inner.limiter {
            Backed::Memory(limiter) => {
                let decided = limiter.check_now(request);
                self.inner.recorder.decided(&origin, &request, &decided, None, limiter.hashers());
                return decided;
            }
            Backed::Redis(limiter) => limiter,
        };
        let began = Instant::now();
        let decided = limiter.check(request).await;
        let took = Some(began.elapsed());
        self.inner.recorder.decided(&origin, &request, &decided, took, limiter.hashers());
        decided
    }

    /// May these proceed, all of them? If so, all are charged; if not, none.
    pub(crate) async fn check_together(
        &self,
        origin: Origin<'_>,
        requests: &[Request<'_>],
    ) -> Result<Vec<Decision>, CheckError> {
        let is_remote = matches!(self.inner.limiter, Backed::Redis(_));
        let began = is_remote.then(Instant::now);
        let decided = either!(self, limiter => limiter.check_all(requests).await);
        let took = began.map(|began| began.elapsed());
        let decided: Vec<Result<Decision, CheckError>> = match decided {
            Ok(decisions) => decisions.into_iter().map(Ok).collect(),
            // One question has no answer, and with it all of them.
            Err(error) => vec![Err(error)],
        };
        for (request, decided) in requests.iter().zip(&decided) {
            self.inner.recorder.decided(&origin, request, decided, took, self.hashers());
        }
        decided.into_iter().collect()
    }

    /// What [`check`](Gate::check) would answer, with nothing charged.
    pub(crate) async fn peek(&self, request: Request<'_>) -> Result<Decision, CheckError> {
        match &self.inner.limiter {
            Backed::Memory(limiter) => limiter.peek_now(request),
            Backed::Redis(limiter) => limiter.peek(request).await,
        }
    }

    /// Why [`check`](Gate::check) would answer what it would answer, with nothing charged.
    pub(crate) async fn explain(&self, request: Request<'_>) -> Explanation {
        either!(self, limiter => limiter.explain(request).await)
    }

    /// Gives back what these receipts are for.
    pub(crate) async fn refund(&self, receipts: &[Receipt]) -> Result<Vec<Returned>, StoreError> {
        either!(self, limiter => limiter.refund_receipts(receipts).await)
    }

    /// Keeps the leases among these receipts from running out.
    pub(crate) async fn renew(&self, receipts: &[Receipt]) -> Result<Vec<Returned>, StoreError> {
        either!(self, limiter => limiter.renew_receipts(receipts).await)
    }

    /// Gives back the leases among these receipts.
    pub(crate) async fn release(&self, receipts: &[Receipt]) -> Result<Vec<Returned>, StoreError> {
        either!(self, limiter => limiter.release_receipts(receipts).await)
    }

    /// What can be given back of a decision, as one text that nobody can change; none if there is nothing.
    pub(crate) fn seal(&self, decision: &Decision) -> Option<String> {
        either!(self, limiter => limiter.sealed_receipts(decision))
    }

    /// The receipts in such a text.
    pub(crate) fn open(&self, sealed: &str) -> Result<Vec<Receipt>, InvalidReceipts> {
        either!(self, limiter => limiter.open_receipts(sealed))
    }

    /// Tells penalties how an attempt went.
    pub(crate) async fn report(
        &self,
        request: Request<'_>,
        result: Report,
    ) -> Result<Vec<Returned>, FollowUpError> {
        either!(self, limiter => limiter.report(request, result).await)
    }

    /// Forgets what was counted for whom this request would be charged.
    pub(crate) async fn reset(&self, request: Request<'_>) -> Result<Vec<Returned>, FollowUpError> {
        either!(self, limiter => limiter.reset(request).await)
    }

    /// [`throttle`](Gate::throttle), unless the store has to be waited for.
    pub(crate) fn throttle_now(
        &self,
        edge: Edge,
        key: &str,
        limit: &Limit,
        operation: Operation,
    ) -> Option<Result<Throttled, ThrottleError>> {
        let Backed::Memory(limiter) = &self.inner.limiter else { return None };
        let decided = limiter.store().apply_item(&self.own_item(key, limit, operation));
        let throttled = decided.map(|(now, answer)| self.note_own(edge, operation, now, answer));
        Some(throttled.map_err(ThrottleError::from))
    }

    /// One operation on a key of the caller's own, under a limit of the caller's own.
    pub(crate) async fn throttle(
        &self,
        edge: Edge,
        key: &str,
        limit: &Limit,
        operation: Operation,
    ) -> Result<Throttled, ThrottleError> {
        if let Some(throttled) = self.throttle_now(edge, key, limit, operation) {
            return throttled;
        }
        let mut plan = Plan::new();
        plan.push(self.own_item(key, limit, operation))?;
        let outcome = either!(self, limiter => limiter.store().apply(&plan).await)?;
        let answer = outcome.answers.first().ok_or(ThrottleError::Unanswered)?;
        Ok(self.note_own(edge, operation, outcome.now, *answer))
    }

    #[inline]
    fn own_item(&self, key: &str, limit: &Limit, operation: Operation) -> Item<'_> {
        let subject = self.hashers().current().subject([("key", key)]);
        Item::new(self.inner.own_limits.key(subject), *limit, operation)
    }

    #[inline]
    fn note_own(&self, edge: Edge, operation: Operation, now: Time, answer: Answer) -> Throttled {
        // Looking is not counted, and what takes something back is no question of its own.
        if let Operation::Charge { .. } = operation {
            self.inner.recorder.throttled(edge, answer.is_admitted());
        }
        Throttled { now, answer }
    }

    /// The keys that make subjects out of attribute values.
    pub(crate) fn hashers(&self) -> &SubjectHashers {
        either!(self, limiter => limiter.hashers())
    }

    /// Looks at the rules in force.
    pub(crate) fn with_rules<T>(&self, look: impl FnOnce(&RuleSet) -> T) -> T {
        self.inner.limiter.with_rules(look)
    }

    /// Puts other rules in force, and says which version they are.
    pub(crate) fn replace_rules(&self, source: Source) -> Result<u64, BuildError> {
        either!(self, limiter => {
            limiter.replace_rules_source(source)?;
            let version = limiter.rules_version();
            limiter.with_rules(|rules| self.inner.recorder.follow(version, rules));
            Ok(version)
        })
    }

    /// Forgets state in memory that counts for nothing any more.
    pub(crate) fn sweep(&self) {
        if let Backed::Memory(limiter) = &self.inner.limiter {
            limiter.store().sweep();
        }
    }

    /// What the store is and how it does.
    pub(crate) fn store_status(&self) -> StoreStatus {
        match &self.inner.limiter {
            Backed::Memory(limiter) => StoreStatus::Memory(limiter.store().usage()),
            Backed::Redis(limiter) => StoreStatus::Redis(limiter.store().store.servers()),
        }
    }

    /// Everything that is counted here.
    pub(crate) fn write(&self, page: &mut Exposition) {
        self.inner.recorder.write(page);
        self.store_status().write(page);
        if let Backed::Redis(limiter) = &self.inner.limiter {
            let help = "Checks that are under way to the store.";
            page.single("rate_limit_store_in_flight", Kind::Gauge, help, limiter.store().store.in_flight());
        }
    }

    /// Sends what is left to be told.
    pub(crate) fn end(&self) {
        self.inner.recorder.end();
    }
}

impl Backed {
    /// Looks at the rules in force.
    pub(crate) fn with_rules<T>(&self, look: impl FnOnce(&RuleSet) -> T) -> T {
        match self {
            Backed::Memory(limiter) => limiter.with_rules(look),
            Backed::Redis(limiter) => limiter.with_rules(look),
        }
    }
}
