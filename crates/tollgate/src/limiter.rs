//! The limiter: rules and a store behind one question, may this proceed?

mod acquire;
mod builder;
mod check_error;
mod decision;
mod follow_up;
mod permit;
mod reservation;
mod tokens;

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use arc_swap::ArcSwap;
use tollgate_core::rules::{Planned, Request, RuleSet};
use tollgate_core::{Decision as Found, Decline, Plan, Span, Store, SubjectHashers, Time, Token};

pub use acquire::AcquireError;
pub use builder::{BuildError, Builder};
pub use check_error::CheckError;
pub use decision::{Decision, RuleView};
pub use follow_up::Returned;
pub use permit::Permit;
pub use reservation::Reservation;

use crate::clock::Clock;
use crate::store::memory::MemoryStore;
use decision::InForce;
use tokens::Tokens;

/// Decides. Cheap to clone: all clones share one store and one rule set.
pub struct Limiter<S = MemoryStore> {
    inner: Arc<Inner<S>>,
}

struct Inner<S> {
    rules: ArcSwap<InForce>,
    store: S,
    hashers: SubjectHashers,
    tokens: Tokens,
}

/// What a check does if it is admitted.
#[derive(Clone, Copy)]
enum Intent {
    Charge,
    Peek,
    Reserve { hold: Span },
}

impl Intent {
    fn of(self, plan: Plan<'_>) -> Plan<'_> {
        match self {
            Intent::Charge => plan,
            Intent::Peek => plan.peeking(),
            Intent::Reserve { hold } => plan.reserving(hold),
        }
    }
}

impl<S> Clone for Limiter<S> {
    fn clone(&self) -> Limiter<S> {
        Limiter { inner: Arc::clone(&self.inner) }
    }
}

impl Limiter {
    /// A limiter with the rules of this YAML text, in memory. [`Limiter::builder`] offers more.
    pub fn from_yaml(rules: &str) -> Result<Limiter, BuildError> {
        Limiter::builder().rules_yaml(rules).build()
    }

    /// Starts a limiter in memory; give it another store with [`Builder::store`].
    pub fn builder() -> Builder<MemoryStore> {
        Builder::new()
    }
}

impl<S: Store> Limiter<S> {
    /// May this proceed? If so, it is charged to every rule it meets; if not, to none.
    ///
    /// A store that cannot answer is no error: the rules' failure policies answer for it.
    pub async fn check<'a>(&self, request: impl Into<Request<'a>>) -> Result<Decision, CheckError> {
        self.decide(request.into(), Intent::Charge).await
    }

    /// What [`check`](Limiter::check) would answer, with nothing charged.
    pub async fn peek<'a>(&self, request: impl Into<Request<'a>>) -> Result<Decision, CheckError> {
        self.decide(request.into(), Intent::Peek).await
    }

    /// The way of every check: attributes, matched rules, Plan, Outcome, Decision.
    async fn decide(&self, mut request: Request<'_>, intent: Intent) -> Result<Decision, CheckError> {
        let Inner { store, hashers, tokens, .. } = &*self.inner;
        let in_force = self.inner.rules.load();
        let rules = &in_force.rules;
        if rules.takes_leases() && request.token == Token::NONE {
            request.token = tokens.next();
        }
        let mut now = if rules.is_timeless() { Time::ZERO } else { store.now() };
        let mut corrected = false;
        let (found, accounts) = loop {
            let plan = match rules.plan(&request, hashers, now)? {
                Planned::Plan { plan, .. } => intent.of(plan),
                settled => break (decision::without_store(rules, &settled), decision::Accounts::new()),
            };
            let outcome = store.apply(&plan).await;
            match Found::new(&plan, outcome.as_ref()) {
                Ok(found) => break (found, decision::accounts(&plan)),
                // The store's clock is in another calendar period than ours: make the Plan for its instant, once.
                Err(undecided) => match undecided.why {
                    Decline::Recompute { at } if !corrected => (now, corrected) = (at, true),
                    _ => return Err(undecided.into()),
                },
            }
        };
        Ok(Decision::new(in_force, found, accounts))
    }

    /// Puts other rules in force, at once and for every clone. Counts stay: consumption is stored, not what remains.
    pub fn replace_rules(&self, rules: RuleSet) {
        let version = self.inner.rules.load().version + 1;
        self.inner.rules.store(Arc::new(InForce { rules, version }));
    }

    /// How often the rules have been replaced.
    pub fn rules_version(&self) -> u64 {
        self.inner.rules.load().version
    }

    /// Looks at the rules in force.
    pub fn with_rules<T>(&self, look: impl FnOnce(&RuleSet) -> T) -> T {
        look(&self.inner.rules.load().rules)
    }

    /// The store behind it.
    pub fn store(&self) -> &S {
        &self.inner.store
    }

    /// The keys that make subjects out of attribute values.
    pub fn hashers(&self) -> &SubjectHashers {
        &self.inner.hashers
    }
}

/// Memory answers at once, so nothing has to be awaited.
impl<C: Clock> Limiter<MemoryStore<C>> {
    /// [`check`](Limiter::check), without a runtime.
    pub fn check_now<'a>(&self, request: impl Into<Request<'a>>) -> Result<Decision, CheckError> {
        at_once(self.check(request))
    }

    /// [`peek`](Limiter::peek), without a runtime.
    pub fn peek_now<'a>(&self, request: impl Into<Request<'a>>) -> Result<Decision, CheckError> {
        at_once(self.peek(request))
    }
}

/// The output of a future that waits for nothing.
fn at_once<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("the store in memory answers at once"),
    }
}

#[cfg(test)]
mod tests;
