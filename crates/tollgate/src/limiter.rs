//! The limiter: rules and a store behind one question, may this proceed?

mod acquire;
mod builder;
mod check_error;
mod decision;
mod explain;
mod follow_up;
mod permit;
mod reservation;
mod sealed;
mod together;
mod tokens;

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use arc_swap::{ArcSwap, Guard};
use smallvec::SmallVec;
use tollgate_core::rules::{Planned, Request, RuleSet};
use tollgate_core::{
    Decline, Outcome, Plan, PlanDecision, Span, Store, StoreError, SubjectHashers, Time, Token,
};

pub use acquire::AcquireError;
pub(crate) use builder::random;
pub use builder::{BuildError, Builder};
pub use check_error::CheckError;
pub use decision::{Decision, RuleView};
pub use explain::{Account, Counted, Explanation, Reason, RuleExplanation, Standing};
pub use follow_up::{FollowUpError, Returned};
pub use permit::Permit;
pub use reservation::Reservation;
pub use sealed::NotOurs;

use crate::clock::Clock;
use crate::store::memory::MemoryStore;
use decision::{Accounts, InForce};
use sealed::Seals;
use tokens::Tokens;
use tollgate_document::Source;

/// Decides. Cheap to clone: all clones share one store and one rule set.
pub struct Limiter<S = MemoryStore> {
    inner: Arc<Inner<S>>,
}

struct Inner<S> {
    rules: ArcSwap<InForce>,
    store: S,
    hashers: SubjectHashers,
    seals: Seals,
    tokens: Tokens,
    /// How long request ids are remembered.
    horizon: Span,
}

impl<S> Inner<S> {
    /// The token of what a request will hold: a new one, or that of its id, so that a request which is sent again is
    /// answered with the token it was booked under.
    fn token_for(&self, request: &Request<'_>) -> Token {
        match request.id {
            None => self.tokens.next(),
            Some(id) => Token(self.hashers.current().subject([("token of a request", id)]).to_u128()),
        }
    }
}

/// What a check does if it is admitted.
#[derive(Clone, Copy)]
enum Intent {
    Charge,
    Peek,
    /// As it stands, whatever the request costs.
    Look,
    Reserve {
        hold: Span,
    },
}

/// A check on its way: attributes, matched rules, Plan, Outcome, Decision.
struct Checking<'q, S> {
    limiter: &'q Inner<S>,
    request: Request<'q>,
    intent: Intent,
    /// For when the Plan is made.
    now: Time,
    /// Whether the store's clock has corrected ours.
    corrected: bool,
}

impl<'q, S: Store> Checking<'q, S> {
    fn new(limiter: &'q Inner<S>, rules: &RuleSet, request: Request<'q>, intent: Intent) -> Checking<'q, S> {
        let now = if rules.is_time_independent() { Time::ZERO } else { limiter.store.now() };
        Checking::at(limiter, rules, request, intent, now)
    }

    /// The same at an instant that the store's clock has just told.
    fn at(
        limiter: &'q Inner<S>,
        rules: &RuleSet,
        mut request: Request<'q>,
        intent: Intent,
        now: Time,
    ) -> Checking<'q, S> {
        if rules.takes_leases() && request.token == Token::NONE {
            request.token = limiter.token_for(&request);
        }
        Checking { limiter, request, intent, now, corrected: false }
    }

    /// Makes the Plan. Says whether the store must be asked; if not, the decision is made.
    fn plan<'r>(
        &self,
        in_force: &'r InForce,
        plan: &mut Plan<'r>,
        found: &mut PlanDecision,
    ) -> Result<bool, CheckError> {
        plan.clear();
        let planned = in_force.rules.plan_into(&self.request, &self.limiter.hashers, self.now, plan)?;
        let Planned::Plan { .. } = planned else {
            *found = decision::without_store(&planned);
            return Ok(false);
        };
        match self.intent {
            Intent::Charge => (),
            Intent::Peek => plan.peek(),
            Intent::Look => plan.peek_status(),
            Intent::Reserve { hold } => plan.reserve(hold),
        }
        if let (Some(id), Intent::Charge | Intent::Reserve { .. }) = (self.request.id, self.intent) {
            let id = self.limiter.hashers.current().subject([("request", id)]);
            plan.set_request_id(id, self.limiter.horizon, in_force.text_hash);
        }
        Ok(true)
    }

    /// Makes the decision. Says whether there is one; if not, the Plan must be made for another instant.
    fn conclude(
        &mut self,
        plan: &Plan<'_>,
        outcome: Result<&Outcome, &StoreError>,
        found: &mut PlanDecision,
        accounts: &mut Accounts,
    ) -> Result<bool, CheckError> {
        if matches!(outcome, Err(StoreError::IdReused)) {
            return Err(CheckError::IdReused);
        }
        match found.decide(plan, outcome) {
            Ok(()) => {
                accounts.note(plan, self.now);
                Ok(true)
            }
            // The store's clock is in another calendar period than ours: make the Plan for its instant, once.
            Err(undecided) => match undecided.why {
                Decline::Recompute { at } if !self.corrected => {
                    (self.now, self.corrected) = (at, true);
                    Ok(false)
                }
                _ => Err(undecided.into()),
            },
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
        self.decide(self.inner.rules.load(), request.into(), Intent::Charge).await
    }

    /// What [`check`](Limiter::check) would answer, with nothing charged.
    pub async fn peek<'a>(&self, request: impl Into<Request<'a>>) -> Result<Decision, CheckError> {
        self.decide(self.inner.rules.load(), request.into(), Intent::Peek).await
    }

    async fn decide(
        &self,
        in_force: Guard<Arc<InForce>>,
        request: Request<'_>,
        intent: Intent,
    ) -> Result<Decision, CheckError> {
        let mut decision = Decision::new(in_force);
        let Decision { in_force, found, accounts } = &mut decision;
        let mut checking = Checking::new(&self.inner, &in_force.rules, request, intent);
        let mut plan = Plan::new();
        while checking.plan(in_force, &mut plan, found)? {
            let outcome = self.inner.store.apply(&plan).await;
            if checking.conclude(&plan, outcome.as_ref(), found, accounts)? {
                found.exactness = found.exactness.max(self.inner.store.exactness(&plan));
                break;
            }
        }
        drop(plan);
        Ok(decision)
    }

    /// Puts other rules in force, at once and for every clone. Counts stay: consumption is stored, not what remains.
    pub fn replace_rules(&self, rules: RuleSet) {
        self.put_in_force(&rules, 0);
    }

    fn put_in_force(&self, rules: &RuleSet, text_hash: u64) {
        // Two at the same moment get two versions: receipts carry them.
        self.inner.rules.rcu(|old| InForce { rules: rules.clone(), version: old.version + 1, text_hash });
    }

    /// [`replace_rules`](Limiter::replace_rules) with those of this YAML text. If they are wrong, all problems are told
    /// and the old rules stay.
    pub fn replace_rules_yaml(&self, rules: &str) -> Result<(), BuildError> {
        self.replace_rules_source(builder::yaml(rules))
    }

    /// [`replace_rules_yaml`](Limiter::replace_rules_yaml) with a text that has a name, which problems are told with.
    pub fn replace_rules_source(&self, source: Source) -> Result<(), BuildError> {
        let (rules, text_hash) = builder::load_source(source)?;
        self.put_in_force(&rules, text_hash);
        Ok(())
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
        self.decide_now(request.into(), Intent::Charge)
    }

    /// [`peek`](Limiter::peek), without a runtime.
    pub fn peek_now<'a>(&self, request: impl Into<Request<'a>>) -> Result<Decision, CheckError> {
        self.decide_now(request.into(), Intent::Peek)
    }

    /// The same way as that of a check that is awaited, without the weight of a future.
    fn decide_now(&self, request: Request<'_>, intent: Intent) -> Result<Decision, CheckError> {
        // Wrapped first and filled then: a decision is large, and this way it is moved once less.
        let mut decided = Ok(Decision::new(self.inner.rules.load()));
        if let Ok(decision) = &mut decided
            && let Err(error) = self.decide_into(decision, request, intent)
        {
            decided = Err(error);
        }
        decided
    }

    fn decide_into(
        &self,
        decision: &mut Decision,
        request: Request<'_>,
        intent: Intent,
    ) -> Result<(), CheckError> {
        let Decision { in_force, found, accounts } = decision;
        let now = self.inner.store.now();
        let mut checking = Checking::at(&self.inner, &in_force.rules, request, intent, now);
        let mut plan = Plan::new();
        let mut outcome = Outcome { now, answers: SmallVec::new() };
        while checking.plan(in_force, &mut plan, found)? {
            let done = self.inner.store.apply_into(&plan, now, &mut outcome);
            if checking.conclude(&plan, done.as_ref().map(|()| &outcome), found, accounts)? {
                break;
            }
        }
        Ok(())
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
