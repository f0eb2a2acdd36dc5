//! The one way from a request to a decision, over any store.
//!
//! [`Limiter`](crate::Limiter) and [`LocalLimiter`](crate::LocalLimiter) are this engine with a store chosen. Our own
//! crates use it directly where they need the type of the store. It is not part of the documented API.

mod account_names;
mod acquire;
mod active_rules;
mod batch;
mod check_error;
mod decision;
mod explain;
mod follow_up;
mod keep_alive;
mod maintenance;
mod postpaid;
mod receipts;
mod setup;
mod watch;

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use arc_swap::{ArcSwap, Guard};
use tollgate_core::plan::failure::{NoLocalAnswers, answer_by_policies};
use tollgate_core::rules::{Planned, Request, RuleSet};
use tollgate_core::{
    Decline, Outcome, Plan, PlanDecision, Span, Store, StoreError, SubjectHashers, Time, Token,
};
use tollgate_document::Source;

pub use account_names::AccountNames;
pub use acquire::AcquireError;
pub use check_error::CheckError;
pub use decision::{Decision, RuleDecision};
pub use explain::{Account, Counted, ExplainedNumbers, Explanation, Reason, RuleExplanation, layer_sentence};
pub use follow_up::{
    Actual, Extension, FollowUpError, MeterSum, MeterValue, Recorded, Returned, RuleExtension, RuleRecord,
    RuleUsage,
};
pub use keep_alive::KeepAlive;
pub use postpaid::Booking;
pub use receipts::sealed::{InvalidReceipts, ReceiptOwner};
pub(crate) use setup::yaml;
pub use setup::{BuildError, Setup};

use crate::clock::Clock;
use crate::store::memory::{MemoryStore, empty_outcome};
use active_rules::ActiveRules;
use decision::Accounts;
use receipts::nonces;
#[doc(hidden)]
pub use receipts::nonces::new_nonce;
use receipts::sealed::ReceiptSeals;
use receipts::tokens::Tokens;
use watch::RulesWatcher;

/// Rules and a store. Cheap to clone: all clones share both.
pub struct Engine<S> {
    inner: Arc<Inner<S>>,
}

struct Inner<S> {
    rules: Arc<ArcSwap<ActiveRules>>,
    store: S,
    hashers: SubjectHashers,
    seals: ReceiptSeals,
    tokens: Tokens,
    /// How long request ids are remembered.
    horizon: Span,
    /// How long receipts can be used, and their returns are remembered.
    receipt_life: Span,
    /// Receives the names of accounts, if there is a ledger.
    account_names: Option<AccountNames>,
    /// Reloads the rules file for as long as the engine exists.
    _watcher: Option<RulesWatcher>,
}

impl<S> Inner<S> {
    /// The token of what the request will hold: a new one, or one derived from the request id, so that a repeated
    /// request gets the token it was booked under.
    fn token_for(&self, request: &Request<'_>) -> Token {
        match request.id {
            None => self.tokens.next(),
            Some(id) => Token(self.hashers.current().subject([("token of a request", id)]).to_u128()),
        }
    }

    /// Random bits that choose a shard.
    fn new_seed(&self) -> u64 {
        self.tokens.next().0 as u64
    }
}

/// What a check does if it is admitted.
#[derive(Clone, Copy)]
enum Intent {
    Charge,
    Peek,
    /// Reads the consumption, whatever the request costs.
    Look,
    Reserve {
        hold: Span,
    },
}

impl Intent {
    /// Whether the cost is an estimate, for which postpaid rules are asked like others.
    const fn reserves(self) -> bool {
        matches!(self, Intent::Reserve { .. })
    }
}

/// A check in progress: attributes, matched rules, Plan, Outcome, Decision.
struct CheckInProgress<'q, S> {
    engine: &'q Inner<S>,
    request: Request<'q>,
    intent: Intent,
    /// The instant the Plan is made for.
    now: Time,
    /// Whether the store's clock has corrected ours.
    corrected: bool,
}

impl<'q, S: Store> CheckInProgress<'q, S> {
    fn new(engine: &'q Inner<S>, rules: &RuleSet, request: Request<'q>, intent: Intent) -> Self {
        let now = if rules.is_time_independent() { Time::ZERO } else { engine.store.now() };
        CheckInProgress::at(engine, rules, request, intent, now)
    }

    /// Starts a check at an instant that was just read from the store's clock.
    fn at(
        engine: &'q Inner<S>,
        rules: &RuleSet,
        mut request: Request<'q>,
        intent: Intent,
        now: Time,
    ) -> Self {
        if rules.takes_leases() && request.token == Token::NONE {
            request.token = engine.token_for(&request);
        }
        if rules.has_shards() && request.seed == 0 {
            request.seed = engine.new_seed();
        }
        CheckInProgress { engine, request, intent, now, corrected: false }
    }

    /// Makes the Plan. Returns whether the store must be asked; if not, the decision is made.
    fn plan<'r>(
        &self,
        active: &'r ActiveRules,
        plan: &mut Plan<'r>,
        found: &mut PlanDecision,
    ) -> Result<bool, CheckError> {
        plan.clear();
        let planned = active.rules.plan_into(&self.request, &self.engine.hashers, self.now, plan)?;
        Ok(self.prepare(active, &planned, plan, found))
    }

    /// Completes a Plan of charges by what the check intends. Returns whether the store must be asked.
    #[inline(always)]
    fn prepare(
        &self,
        active: &ActiveRules,
        planned: &Planned<'_, ()>,
        plan: &mut Plan<'_>,
        found: &mut PlanDecision,
    ) -> bool {
        let Planned::Plan { .. } = planned else {
            *found = decision::without_store(planned);
            return false;
        };
        match self.intent {
            Intent::Charge => (),
            Intent::Peek => plan.peek(),
            Intent::Look => plan.peek_status(),
            Intent::Reserve { hold } => plan.reserve(hold),
        }
        self.engine.store.place_subjects(plan);
        self.engine.note_names(&active.rules, &self.request, plan);
        if let (Some(id), Intent::Charge | Intent::Reserve { .. }) = (self.request.id, self.intent) {
            let id = self.engine.hashers.current().subject([("request", id)]);
            plan.set_request_id(id, self.engine.horizon, active.text_hash);
        }
        true
    }

    /// Makes the decision by failure policies. Without a guard there is no limiter in this process that `local` and `cap`
    /// could ask.
    #[cold]
    fn conclude_without_store(
        &mut self,
        plan: &Plan<'_>,
        error: &StoreError,
        found: &mut PlanDecision,
        accounts: &mut Accounts,
    ) -> Result<bool, CheckError> {
        if matches!(error, StoreError::IdReused) {
            return Err(CheckError::IdReused);
        }
        let outcome = answer_by_policies(plan, error, self.now, &NoLocalAnswers);
        self.conclude(plan, Ok(&outcome), found, accounts)
    }

    /// Makes the decision. Returns whether there is one; if not, the Plan must be made for another instant.
    fn conclude(
        &mut self,
        plan: &Plan<'_>,
        outcome: Result<&Outcome, &StoreError>,
        found: &mut PlanDecision,
        accounts: &mut Accounts,
    ) -> Result<bool, CheckError> {
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(error) => return self.conclude_without_store(plan, error, found, accounts),
        };
        match found.decide(plan, outcome) {
            Ok(()) => {
                let charged_at = outcome.now;
                accounts.note(plan, self.now, charged_at);
                if let Some(id) = self.request.id {
                    let id = self.engine.hashers.current().subject([("nonce of a request", id)]);
                    accounts.set_nonce(nonces::nonce_of_request(id, charged_at));
                }
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

impl<S> Clone for Engine<S> {
    fn clone(&self) -> Engine<S> {
        Engine { inner: Arc::clone(&self.inner) }
    }
}

impl<S: Store> Engine<S> {
    /// Decides, and charges every matched rule if the request is allowed.
    ///
    /// A store that cannot answer is not an error: the rules' failure policies answer instead.
    pub async fn check(&self, request: Request<'_>) -> Result<Decision, CheckError> {
        self.decide(self.inner.rules.load(), request, Intent::Charge).await
    }

    /// Decides and charges nothing.
    pub async fn peek(&self, request: Request<'_>) -> Result<Decision, CheckError> {
        self.decide(self.inner.rules.load(), request, Intent::Peek).await
    }

    /// Decides as [`check`](Engine::check) does; quotas hold the cost for at most `hold` instead of counting it.
    pub async fn reserve(&self, mut request: Request<'_>, hold: Span) -> Result<Decision, CheckError> {
        if request.token == Token::NONE {
            request.token = self.inner.token_for(&request);
        }
        self.decide(self.inner.rules.load(), request, Intent::Reserve { hold }).await
    }

    async fn decide(
        &self,
        active: Guard<Arc<ActiveRules>>,
        request: Request<'_>,
        intent: Intent,
    ) -> Result<Decision, CheckError> {
        if active.rules.has_postpaid() && !intent.reserves() {
            return self.decide_postpaid(active, request, intent).await;
        }
        let mut decision = Decision::new(active);
        let Decision { active, found, accounts } = &mut decision;
        let mut check = CheckInProgress::new(&self.inner, &active.rules, request, intent);
        let mut plan = Plan::new();
        while check.plan(active, &mut plan, found)? {
            let outcome = self.inner.store.apply(&plan).await;
            if check.conclude(&plan, outcome.as_ref(), found, accounts)? {
                found.exactness = found.exactness.max(self.inner.store.exactness(&plan));
                break;
            }
        }
        drop(plan);
        Ok(decision)
    }

    /// Replaces the rules for every clone at once. Consumption stays.
    pub fn replace_rules(&self, rules: RuleSet) {
        active_rules::activate(&self.inner.rules, &rules, 0);
    }

    /// Replaces the rules by those in this YAML text. Invalid rules are reported whole, and the old ones stay.
    pub fn replace_rules_source(&self, source: Source) -> Result<(), BuildError> {
        let (rules, text_hash) = setup::load_source(&source, self.inner.rules.load().refuses_recorded)?;
        active_rules::activate(&self.inner.rules, &rules, text_hash);
        Ok(())
    }

    /// Loads rules without putting them in force, and returns them with the hash of their text.
    pub fn load_rules(&self, source: &Source) -> Result<(RuleSet, u64), BuildError> {
        setup::load_source(source, self.inner.rules.load().refuses_recorded)
    }

    /// Puts rules in force that were made from a text with this hash. Consumption stays.
    pub fn activate(&self, rules: &RuleSet, text_hash: u64) {
        active_rules::activate(&self.inner.rules, rules, text_hash);
    }

    /// Returns the rules in force, and the hash of the text that they were made from.
    pub fn active_rules(&self) -> (RuleSet, u64) {
        let active = self.inner.rules.load();
        (active.rules.clone(), active.text_hash)
    }

    /// How often the rules have been replaced.
    pub fn rules_version(&self) -> u64 {
        self.inner.rules.load().version
    }

    /// Calls `read` with the active rules.
    pub fn with_rules<T>(&self, read: impl FnOnce(&RuleSet) -> T) -> T {
        read(&self.inner.rules.load().rules)
    }

    /// The store.
    pub fn store(&self) -> &S {
        &self.inner.store
    }

    /// The hash keys that turn attribute values into subjects.
    pub fn hashers(&self) -> &SubjectHashers {
        &self.inner.hashers
    }
}

/// The memory store answers without waiting, so these need no runtime.
impl<C: Clock> Engine<MemoryStore<C>> {
    /// [`check`](Engine::check), synchronously.
    pub fn check_now(&self, request: Request<'_>) -> Result<Decision, CheckError> {
        self.decide_now(request, Intent::Charge)
    }

    /// [`peek`](Engine::peek), synchronously.
    pub fn peek_now(&self, request: Request<'_>) -> Result<Decision, CheckError> {
        self.decide_now(request, Intent::Peek)
    }

    /// The same steps as [`decide`](Engine::decide), without the cost of a future.
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
        if decision.active.rules.has_postpaid() {
            return self.decide_postpaid_into(decision, request, intent);
        }
        let Decision { active, found, accounts } = decision;
        let now = self.inner.store.now();
        let mut check = CheckInProgress::at(&self.inner, &active.rules, request, intent, now);
        let mut plan = Plan::new();
        let mut outcome = empty_outcome(now);
        while check.plan(active, &mut plan, found)? {
            let done = self.inner.store.apply_into(&plan, now, &mut outcome);
            if check.conclude(&plan, done.as_ref().map(|()| &outcome), found, accounts)? {
                break;
            }
        }
        Ok(())
    }

    /// Few rule sets have postpaid rules.
    #[cold]
    fn decide_postpaid_into(
        &self,
        decision: &mut Decision,
        request: Request<'_>,
        intent: Intent,
    ) -> Result<(), CheckError> {
        *decision = poll_ready(self.decide_postpaid(self.inner.rules.load(), request, intent))?;
        Ok(())
    }
}

/// The output of a future that waits for nothing, such as every future over the memory store.
pub(crate) fn poll_ready<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("the memory store answers without waiting"),
    }
}

#[cfg(test)]
mod shard_tests;
#[cfg(test)]
mod tests;
