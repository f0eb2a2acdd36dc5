//! The interface between Plans and the stores that keep state.

use std::error::Error;
use std::future::Future;

use crate::decision::exactness::Exactness;
use crate::plan::layers::LayerView;
use crate::plan::{Outcome, Plan};
use crate::state::CorruptState;
use crate::time::Time;

/// Applies whole Plans, each in one atomic step, as [`evaluate`](crate::plan::evaluate::evaluate) defines it.
///
/// A store knows which items block. It does not know shadow rules, failure policies, attribute values or transports.
pub trait Store {
    /// Applies `plan` at the time of the store's clock.
    fn apply(&self, plan: &Plan<'_>) -> impl Future<Output = Result<Outcome, StoreError>> + Send;

    /// Applies a follow-up without waiting for the answer, such as the release when a lease guard is dropped.
    fn apply_unawaited(&self, plan: &Plan<'_>);

    /// Notes that a failure policy admitted the Plan instead of this store. A store that records admissions appends it.
    fn note_policy_answer(&self, _plan: &Plan<'_>, _outcome: &Outcome) {}

    /// Replaces the keys of anonymous subjects beyond the cap of their rule by that of its overflow subject. A store that keeps
    /// such caps itself changes nothing.
    fn place_subjects(&self, _plan: &mut Plan<'_>) {}

    /// Returns what the layers before this store would do with each item of a Plan of charges, and changes nothing. Empty if
    /// there are no layers.
    fn view_layers(&self, _plan: &Plan<'_>) -> Vec<(usize, LayerView)> {
        Vec::new()
    }

    /// Returns how much its answer to this Plan may differ from that of one atomic step.
    fn exactness(&self, _plan: &Plan<'_>) -> Exactness {
        Exactness::Exact
    }

    /// Whether it may apply a Plan and then fail to say so. Then what must not be applied twice needs a request id.
    fn may_lose_answers(&self) -> bool {
        true
    }

    /// Whether it decides by a clock that all its clients share. Only then can a client foresee when a window ends.
    fn has_shared_clock(&self) -> bool {
        true
    }

    /// Returns a number that changes whenever what the store acknowledged may have been lost, such as after a new
    /// connection to it.
    fn generation(&self) -> u64 {
        0
    }

    /// Whether this error of [`apply`](Store::apply) proves that the Plan was not applied. If in doubt, it may have been.
    fn is_unapplied(&self, _error: &StoreError) -> bool {
        false
    }

    /// Returns the store's time, as well as it is known without a request to the store. Plans are made for this instant.
    fn now(&self) -> Time;
}

/// The store could not decide. A refusal is not an error.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A temporary failure: unreachable, slow, failing over. It is unknown whether the Plan was applied.
    #[error("the store did not answer")]
    Transient(#[source] Box<dyn Error + Send + Sync>),
    /// A failure that lasts until a setting is changed.
    #[error("the store rejects these settings")]
    Misconfigured(#[source] Box<dyn Error + Send + Sync>),
    /// The store remembers this request id from a request with other content. Nothing was applied.
    #[error("request id was already used for another request; choose a new id for each request")]
    IdReused,
    /// The value under a key is not a valid state.
    #[error("corrupt state of rule {rule:?}")]
    Corrupt {
        /// The rule to which the key belongs.
        rule: String,
        /// What is wrong with the state.
        source: CorruptState,
    },
}
