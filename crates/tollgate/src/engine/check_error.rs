//! Why a check has no decision.

use tollgate_core::PlanError;
use tollgate_core::decision::Undecided;

/// The check could not be decided. A refusal is a [`Decision`](super::Decision), not an error.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CheckError {
    /// The request is invalid under these rules: its cost exceeds the capacity of a limit, for example.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The store answered, but without a decision.
    #[error(transparent)]
    Undecided(#[from] Undecided),
    /// The request id was used for another request, and is still remembered.
    #[error("this request id was used for another request; choose a new id for each request")]
    IdReused,
}
