//! The limiter as every transport uses it, on either store. Every answer is recorded here and nowhere else.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use http::HeaderMap;
use parking_lot::Mutex;
use tollgate::core::rules::{Mode, Request, RuleSet};
use tollgate::core::{
    Algorithm, Answer, Attributes, Item, Keyspace, Limit, Operation, Plan, PlanError, Store, StoreError,
    SubjectHashers, Time,
};
use tollgate::engine::Engine;
use tollgate::guard::{Guarded, PostCounts};
use tollgate::ledger::{Ledger, Recorded};
use tollgate::limiter::{CheckError, Explanation};
use tollgate::store::redis::RedisStore;
use tollgate::{Decision, MemoryStore};

use self::layers::Layers;
use super::control::Control;
use super::edge::auth::Caller;
use super::observe::history::Sample;
use super::observe::log::LogThrottle;
use super::observe::{Exposition, Kind, Recorder, TimedStore};
use super::store::status::StoreStatus;
use crate::reference::References;
use late_usage::LateUsage;

/// The one way to ask the limiter. Cheap to clone; all clones share the same limiter.
#[derive(Clone)]
pub(crate) struct Gate {
    inner: Arc<Inner>,
}

struct Inner {
    limiter: Backed,
    recorder: Recorder,
    /// The keyspace of the keys that callers send together with a limit. No rule uses it.
    own_limits: Keyspace,
    /// How many such keys the memory store keeps. Further keys share one state.
    own_keys_max: u32,
    /// Whether some rule takes leases. Almost no rule set does, so most checks need not look further.
    takes_leases: AtomicBool,
    leases_refused: LogThrottle,
    ledger: Option<Ledger>,
    references: References,
    /// The fingerprint of the rules in force.
    rules_fingerprint: ArcSwap<String>,
    late_usage: LateUsage,
    /// The rules of the file, and the live changes over them.
    layers: Mutex<Layers>,
    /// Whether other servers share the store.
    has_others: AtomicBool,
    /// The audit trail, if there is a database.
    control: OnceLock<Arc<Control>>,
}

/// The limiter, by its store.
pub(crate) enum Backed {
    /// Answers without waiting.
    Memory(Engine<MemoryStore>),
    /// Answers after a round trip.
    Redis(Engine<Guarded<Recorded<TimedStore<RedisStore>>>>),
    /// The memory store with a ledger, which has to be awaited.
    RecordedMemory(Engine<Guarded<Recorded<MemoryStore>>>),
}

/// The route of a request into the server, as metrics and logs name it.
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

/// Where a request comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin<'a> {
    pub(crate) edge: Edge,
    /// The caller's span, as its header `traceparent` names it.
    pub(crate) traceparent: Option<&'a str>,
}

impl<'a> Origin<'a> {
    /// The origin of a request with these header fields.
    pub(crate) fn from_headers(edge: Edge, headers: &'a HeaderMap) -> Origin<'a> {
        Origin { edge, traceparent: headers.get("traceparent").and_then(|parent| parent.to_str().ok()) }
    }
}

impl From<Edge> for Origin<'_> {
    fn from(edge: Edge) -> Self {
        Origin { edge, traceparent: None }
    }
}

/// The result of a call. The memory store answers at once; Redis has to be awaited.
pub(crate) enum Call<T, P> {
    Ready(T),
    /// Nothing has been sent yet. Dropping it has no effect.
    Pending(P),
}

/// A check that waits for the store.
pub(crate) struct PendingCheck<'a> {
    gate: &'a Gate,
    origin: Origin<'a>,
    request: Request<'a>,
}

/// A charge under the caller's own limit that waits for the store.
pub(crate) struct PendingThrottle<'a> {
    gate: &'a Gate,
    edge: Edge,
    item: Item<'a>,
}

/// Why a charge under the caller's own limit was not decided.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ThrottleError {
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the store returned no decision; try again")]
    Unanswered,
}

/// The result of one operation under the caller's own limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Throttled {
    /// When it was decided, by the store's clock.
    pub(crate) now: Time,
    pub(crate) answer: Answer,
}

/// Evaluates the same expression on either limiter.
macro_rules! either {
    ($gate:expr, $limiter:ident => $what:expr) => {
        match &$gate.inner.limiter {
            Backed::Memory($limiter) => $what,
            Backed::Redis($limiter) => $what,
            Backed::RecordedMemory($limiter) => $what,
        }
    };
}

mod follow_up;
mod late_usage;
mod layers;
mod ledger_metrics;

impl Gate {
    pub(crate) fn new(
        limiter: Backed,
        recorder: Recorder,
        own_limits: Keyspace,
        own_keys_max: u32,
        ledger: Option<Ledger>,
        (references, rules_fingerprint): (References, String),
        request_horizon: Duration,
    ) -> Gate {
        let takes_leases = AtomicBool::new(limiter.with_rules(RuleSet::takes_leases));
        let leases_refused = LogThrottle::default();
        let layers = Mutex::new(Layers::new(&limiter));
        let has_others = AtomicBool::new(false);
        let inner = Inner {
            limiter,
            recorder,
            own_limits,
            own_keys_max,
            takes_leases,
            leases_refused,
            ledger,
            references,
            rules_fingerprint: ArcSwap::from_pointee(rules_fingerprint),
            late_usage: LateUsage::new(request_horizon),
            layers,
            has_others,
            control: OnceLock::new(),
        };
        Gate { inner: Arc::new(inner) }
    }

    /// The reference of a refusal, which explains it later; `None` if the request is allowed.
    #[inline]
    pub(crate) fn reference(&self, decision: &Decision) -> Option<String> {
        if decision.allowed() {
            return None;
        }
        self.inner.references.of(decision, &self.inner.rules_fingerprint.load())
    }

    /// The references of this server.
    pub(crate) fn references(&self) -> &References {
        &self.inner.references
    }

    /// The fingerprint of the rules in force.
    pub(crate) fn rules_fingerprint(&self) -> Arc<String> {
        self.inner.rules_fingerprint.load_full()
    }

    /// Decides whether a request may proceed, and charges it if so.
    #[inline]
    pub(crate) fn check<'a>(
        &'a self,
        origin: impl Into<Origin<'a>>,
        request: Request<'a>,
    ) -> Call<Result<Decision, CheckError>, PendingCheck<'a>> {
        let (origin, recorder) = (origin.into(), &self.inner.recorder);
        match &self.inner.limiter {
            Backed::Memory(limiter) => {
                let decided = limiter.check_now(request);
                recorder.decided(&origin, &request, &decided, None, limiter.hashers());
                Call::Ready(decided)
            }
            Backed::Redis(_) | Backed::RecordedMemory(_) => {
                Call::Pending(PendingCheck { gate: self, origin, request })
            }
        }
    }

    /// Decides whether several requests may proceed together. Either all are charged or none.
    pub(crate) async fn check_together(
        &self,
        origin: Origin<'_>,
        requests: &[Request<'_>],
    ) -> Result<Vec<Decision>, CheckError> {
        let is_remote = !matches!(self.inner.limiter, Backed::Memory(_));
        let began = is_remote.then(Instant::now);
        let decided = self.check_all(origin.edge, requests).await;
        let took = began.map(|began| began.elapsed());
        let decided: Vec<Result<Decision, CheckError>> = match decided {
            Ok(decisions) => decisions.into_iter().map(Ok).collect(),
            // If one request fails, there is no decision for any of them.
            Err(error) => vec![Err(error)],
        };
        for (request, decided) in requests.iter().zip(&decided) {
            self.inner.recorder.decided(&origin, request, decided, took, self.hashers());
        }
        decided.into_iter().collect()
    }

    /// Returns what [`check`](Gate::check) would return, and charges nothing.
    pub(crate) async fn peek(&self, request: Request<'_>) -> Result<Decision, CheckError> {
        match &self.inner.limiter {
            Backed::Memory(limiter) => limiter.peek_now(request),
            Backed::Redis(limiter) => limiter.peek(request).await,
            Backed::RecordedMemory(limiter) => limiter.peek(request).await,
        }
    }

    /// Explains what [`check`](Gate::check) would return, and charges nothing.
    pub(crate) async fn explain(&self, request: Request<'_>) -> Explanation {
        either!(self, limiter => limiter.explain(request).await)
    }

    /// Applies one operation to a key under a limit that the caller sent along.
    #[inline]
    pub(crate) fn throttle(
        &self,
        (edge, caller): (Edge, &Caller),
        key: &str,
        limit: &Limit,
        operation: Operation,
    ) -> Call<Result<Throttled, ThrottleError>, PendingThrottle<'_>> {
        let item = self.own_item(caller, key, limit, operation);
        match &self.inner.limiter {
            Backed::Memory(limiter) => {
                let decided = limiter.store().apply_item(&item);
                let throttled =
                    decided.map(|(now, answer)| self.record_throttle(edge, operation, now, answer));
                Call::Ready(throttled.map_err(ThrottleError::from))
            }
            Backed::Redis(_) | Backed::RecordedMemory(_) => {
                Call::Pending(PendingThrottle { gate: self, edge, item })
            }
        }
    }

    #[inline]
    fn own_item(&self, caller: &Caller, key: &str, limit: &Limit, operation: Operation) -> Item<'_> {
        let hasher = self.hashers().current();
        let subject = match caller.bound() {
            None => hasher.subject([("key", key)]),
            // Keys of callers that are bound otherwise are other keys.
            Some(bound) => hasher.subject([("bound", bound.id()), ("key", key)]),
        };
        let item = Item::new(self.inner.own_limits.key(subject), *limit, operation);
        Item { ip_subjects_max: Some(self.inner.own_keys_max), ..item }
    }

    #[inline]
    fn record_throttle(&self, edge: Edge, operation: Operation, now: Time, answer: Answer) -> Throttled {
        // Peeks and refunds are not counted as requests.
        if let Operation::Charge { .. } = operation {
            self.inner.recorder.throttled(edge, answer.is_admitted());
        }
        Throttled { now, answer }
    }

    /// Whether a rule with a concurrency limit matches these attributes.
    pub(crate) fn has_lease_rule(&self, attributes: &Attributes<'_>) -> bool {
        self.with_rules(|rules| {
            let is_lease =
                |rule: u32| rules.rules()[rule as usize].limit.algorithm() == Some(Algorithm::Concurrency);
            rules.matching(attributes).into_iter().any(is_lease)
        })
    }

    /// The enforced rule under which this request would hold a lease that its transport could not give back. Logs it.
    ///
    /// For transports that return no receipt: the lease would stay taken until it expires.
    #[inline]
    pub(crate) fn unreturnable_lease(&self, edge: Edge, attributes: &Attributes<'_>) -> Option<String> {
        if !self.inner.takes_leases.load(Ordering::Relaxed) {
            return None;
        }
        self.find_unreturnable_lease(edge, attributes)
    }

    #[cold]
    fn find_unreturnable_lease(&self, edge: Edge, attributes: &Attributes<'_>) -> Option<String> {
        let rule = self.with_rules(|rules| {
            let mut matching =
                rules.matching(attributes).into_iter().map(|rule| &rules.rules()[rule as usize]);
            let lease = matching.find(|rule| {
                rule.mode == Mode::Enforce && rule.limit.algorithm() == Some(Algorithm::Concurrency)
            });
            lease.map(|rule| rule.keyspace.rule().to_owned())
        })?;
        if let Some(suppressed) = self.inner.leases_refused.pass(1) {
            tracing::warn!(
                event = "lease_refused",
                edge = edge.name(),
                rule,
                suppressed,
                "a request was refused because this transport cannot release the lease of its rule; use /v1/leases, or \
                 exclude these requests from the rule"
            );
        }
        Some(rule)
    }

    /// The hash keys that turn attribute values into subjects.
    pub(crate) fn hashers(&self) -> &SubjectHashers {
        self.inner.limiter.hashers()
    }

    /// Calls a function with the rules in force.
    pub(crate) fn with_rules<T>(&self, look: impl FnOnce(&RuleSet) -> T) -> T {
        self.inner.limiter.with_rules(look)
    }

    /// Deletes expired state of the memory store.
    pub(crate) fn sweep(&self) {
        match &self.inner.limiter {
            Backed::Memory(limiter) => drop(limiter.store().sweep()),
            Backed::RecordedMemory(limiter) => drop(limiter.store().store().store().sweep()),
            Backed::Redis(_) => (),
        }
    }

    /// The kind and the state of the store.
    pub(crate) fn store_status(&self) -> StoreStatus {
        match &self.inner.limiter {
            Backed::Memory(limiter) => StoreStatus::Memory(limiter.store().usage()),
            Backed::RecordedMemory(limiter) => StoreStatus::Memory(limiter.store().store().store().usage()),
            Backed::Redis(limiter) => StoreStatus::Redis {
                overflowed: limiter.store().layer_counts().overflowed,
                servers: limiter.store().store().store().store.servers(),
                slices: limiter.store().slice_counts(),
            },
        }
    }

    /// The ledger, if the server has one.
    pub(crate) fn ledger(&self) -> Option<&Ledger> {
        self.inner.ledger.as_ref()
    }

    /// Reads the counters for the history.
    pub(crate) fn sample(&self, at_s: u64) -> Sample {
        self.inner.recorder.sample(at_s)
    }

    /// Writes the metrics of checks, of the store and of the ledger.
    pub(crate) fn write(&self, page: &mut Exposition) {
        self.inner.recorder.write(page);
        self.store_status().write(page);
        if let Some(ledger) = &self.inner.ledger {
            ledger_metrics::write(page, &ledger.status(), &ledger.follow_status());
        }
        if let Backed::Redis(limiter) = &self.inner.limiter {
            self.inner.late_usage.write(page);
            write_posts(page, &limiter.store().post_counts());
            let help = "Checks in flight to the store.";
            page.single(
                "rate_limit_store_in_flight",
                Kind::Gauge,
                help,
                limiter.store().store().store().store.in_flight(),
            );
            let counts = limiter.store().layer_counts();
            let mut family = page.family(
                "rate_limit_layer_refused_total",
                Kind::Counter,
                "Checks that this server refused without asking the store, by layer.",
            );
            family.sample(&[("layer", "prefilter")], counts.prefilter);
            family.sample(&[("layer", "memory")], counts.memory);
        }
    }

    /// What checks recorded.
    pub(crate) fn recorder(&self) -> &Recorder {
        &self.inner.recorder
    }

    /// Sends the remaining traces.
    pub(crate) fn end(&self) {
        self.inner.recorder.end();
    }
}

impl Call<Result<Decision, CheckError>, PendingCheck<'_>> {
    /// Returns the decision, and waits for the store if it must.
    pub(crate) async fn finish(self) -> Result<Decision, CheckError> {
        match self {
            Call::Ready(decided) => decided,
            // Boxed, so that the future stays small where nothing has to be awaited.
            Call::Pending(pending) => Box::pin(pending.finish()).await,
        }
    }
}

impl PendingCheck<'_> {
    async fn finish(self) -> Result<Decision, CheckError> {
        let PendingCheck { gate, origin, request } = self;
        let started = Instant::now();
        let decided = gate.check_one(origin.edge, request).await;
        let took = Some(started.elapsed());
        gate.inner.recorder.decided(&origin, &request, &decided, took, gate.hashers());
        decided
    }
}

impl Call<Result<Throttled, ThrottleError>, PendingThrottle<'_>> {
    /// Returns the result, and waits for the store if it must.
    pub(crate) async fn finish(self) -> Result<Throttled, ThrottleError> {
        match self {
            Call::Ready(throttled) => throttled,
            Call::Pending(pending) => pending.finish().await,
        }
    }
}

impl PendingThrottle<'_> {
    async fn finish(self) -> Result<Throttled, ThrottleError> {
        let (gate, operation) = (self.gate, self.item.operation);
        let mut plan = Plan::new();
        plan.push(self.item)?;
        // Callers' own limits have no failure policy: their callers see the failure.
        let outcome = match &gate.inner.limiter {
            Backed::Memory(limiter) => limiter.store().apply(&plan).await,
            Backed::Redis(limiter) => limiter.store().store().apply(&plan).await,
            Backed::RecordedMemory(limiter) => limiter.store().store().apply(&plan).await,
        }?;
        let answer = outcome.answers.first().ok_or(ThrottleError::Unanswered)?;
        Ok(gate.record_throttle(self.edge, operation, outcome.now, *answer))
    }
}

impl Backed {
    /// The hash keys that turn attribute values into subjects.
    pub(crate) fn hashers(&self) -> &SubjectHashers {
        match self {
            Backed::Memory(limiter) => limiter.hashers(),
            Backed::Redis(limiter) => limiter.hashers(),
            Backed::RecordedMemory(limiter) => limiter.hashers(),
        }
    }

    /// Calls a function with the rules in force.
    pub(crate) fn with_rules<T>(&self, look: impl FnOnce(&RuleSet) -> T) -> T {
        match self {
            Backed::Memory(limiter) => limiter.with_rules(look),
            Backed::Redis(limiter) => limiter.with_rules(look),
            Backed::RecordedMemory(limiter) => limiter.with_rules(look),
        }
    }

    /// The store that servers share, if there is one.
    pub(crate) fn redis_store(&self) -> Option<RedisStore> {
        match self {
            Backed::Memory(_) | Backed::RecordedMemory(_) => None,
            Backed::Redis(limiter) => Some(limiter.store().store().store().store.clone()),
        }
    }
}

fn write_posts(page: &mut Exposition, counts: &PostCounts) {
    let PostCounts { posted_units, lost_units, waiting } = *counts;
    let mut family = page.family(
        "rate_limit_local_units_total",
        Kind::Counter,
        "Units that quotas and meters admitted without the store, by what became of them.",
    );
    family.sample(&[("outcome", "posted")], posted_units);
    family.sample(&[("outcome", "lost")], lost_units);
    let help = "Sums of units that quotas and meters admitted without the store, and that wait for it.";
    page.single("rate_limit_local_sums_waiting", Kind::Gauge, help, waiting);
}
