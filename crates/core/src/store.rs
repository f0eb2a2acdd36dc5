//! The seam to whatever keeps the state.

use std::error::Error;
use std::future::Future;

use crate::exactness::Exactness;
use crate::plan::{Outcome, Plan};
use crate::state::CorruptState;
use crate::time::Time;

/// Carries out whole Plans, each as one indivisible step, by the rules of [`evaluate`](crate::plan::evaluate::evaluate).
///
/// A store knows "blocking"; it knows nothing of shadow rules, failure policies, subjects or transports.
pub trait Store {
    /// Carries out `plan` at the store's own clock.
    fn apply(&self, plan: &Plan<'_>) -> impl Future<Output = Result<Outcome, StoreError>> + Send;

    /// Carries out a follow-up that nobody waits for: a lease given back by a guard that is dropped.
    fn apply_unawaited(&self, plan: &Plan<'_>);

    /// How far its answer to this Plan may be from that of one indivisible step. Exact unless it says otherwise.
    fn exactness(&self, _plan: &Plan<'_>) -> Exactness {
        Exactness::Exact
    }

    /// What the store's clock shows, as far as that can be told without asking it. Plans are made for this instant.
    fn now(&self) -> Time;
}

/// The store could not decide. A refusal is not an error.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// It may work again by itself: unreachable, slow, failing over. Whether the Plan was carried out is unknown.
    #[error("the store did not answer")]
    Transient(#[source] Box<dyn Error + Send + Sync>),
    /// It will not work until somebody changes a setting.
    #[error("the store refuses to work with these settings")]
    Misconfigured(#[source] Box<dyn Error + Send + Sync>),
    /// The request's id was used for another request, and is still remembered. Nothing was carried out.
    #[error("this request id was used for another request; choose a new id for each request")]
    IdReused,
    /// What it holds under a key is no state of ours.
    #[error("the state of rule {rule:?} cannot be read")]
    Corrupt {
        /// The rule whose state it is.
        rule: String,
        /// What is wrong with it.
        source: CorruptState,
    },
}
