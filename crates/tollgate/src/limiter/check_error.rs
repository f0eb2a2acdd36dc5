//! Why a check has no answer.

use tollgate_core::PlanError;
use tollgate_core::decision::Undecided;

/// The question could not be decided. A refusal is a [`Decision`](super::Decision), not an error.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CheckError {
    /// The question makes no sense under these rules: it costs more than could ever be admitted, for instance.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The store answered, but with no decision.
    #[error(transparent)]
    Undecided(#[from] Undecided),
    /// The request's id was used for another request, and is still remembered.
    #[error("this request id was used for another request; choose a new id for each request")]
    IdReused,
}
