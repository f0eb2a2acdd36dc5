//! Any store behind one type.

use std::pin::Pin;

use tollgate_core::{Exactness, Outcome, Plan, Store, StoreError, Time};

/// [`Store`] with a boxed future, so that it can be a trait object.
trait ObjectStore: Send + Sync {
    fn apply<'a>(&'a self, plan: &'a Plan<'_>) -> Applying<'a>;
    fn apply_unawaited(&self, plan: &Plan<'_>);
    fn note_policy_answer(&self, plan: &Plan<'_>, outcome: &Outcome);
    fn exactness(&self, plan: &Plan<'_>) -> Exactness;
    fn may_lose_answers(&self) -> bool;
    fn has_shared_clock(&self) -> bool;
    fn generation(&self) -> u64;
    fn is_unapplied(&self, error: &StoreError) -> bool;
    fn now(&self) -> Time;
}

type Applying<'a> = Pin<Box<dyn Future<Output = Result<Outcome, StoreError>> + Send + 'a>>;

impl<S: Store + Send + Sync> ObjectStore for S {
    fn apply<'a>(&'a self, plan: &'a Plan<'_>) -> Applying<'a> {
        Box::pin(Store::apply(self, plan))
    }

    fn apply_unawaited(&self, plan: &Plan<'_>) {
        Store::apply_unawaited(self, plan);
    }

    fn note_policy_answer(&self, plan: &Plan<'_>, outcome: &Outcome) {
        Store::note_policy_answer(self, plan, outcome);
    }

    fn exactness(&self, plan: &Plan<'_>) -> Exactness {
        Store::exactness(self, plan)
    }

    fn may_lose_answers(&self) -> bool {
        Store::may_lose_answers(self)
    }

    fn has_shared_clock(&self) -> bool {
        Store::has_shared_clock(self)
    }

    fn generation(&self) -> u64 {
        Store::generation(self)
    }

    fn is_unapplied(&self, error: &StoreError) -> bool {
        Store::is_unapplied(self, error)
    }

    fn now(&self) -> Time {
        Store::now(self)
    }
}

/// A store of the application. One allocation per call, which no network store notices.
pub(super) struct CustomStore(Box<dyn ObjectStore>);

impl CustomStore {
    pub(super) fn new(store: impl Store + Send + Sync + 'static) -> CustomStore {
        CustomStore(Box::new(store))
    }
}

impl Store for CustomStore {
    async fn apply(&self, plan: &Plan<'_>) -> Result<Outcome, StoreError> {
        self.0.apply(plan).await
    }

    fn apply_unawaited(&self, plan: &Plan<'_>) {
        self.0.apply_unawaited(plan);
    }

    fn note_policy_answer(&self, plan: &Plan<'_>, outcome: &Outcome) {
        self.0.note_policy_answer(plan, outcome);
    }

    fn exactness(&self, plan: &Plan<'_>) -> Exactness {
        self.0.exactness(plan)
    }

    fn may_lose_answers(&self) -> bool {
        self.0.may_lose_answers()
    }

    fn has_shared_clock(&self) -> bool {
        self.0.has_shared_clock()
    }

    fn generation(&self) -> u64 {
        self.0.generation()
    }

    fn is_unapplied(&self, error: &StoreError) -> bool {
        self.0.is_unapplied(error)
    }

    fn now(&self) -> Time {
        self.0.now()
    }
}
