//! Rules: which limits a request meets, on whose account, in what numbers.
//!
//! A [`RuleSet`] is compiled once and only read after that. Where rules come from (a file, a preset, code) is not known
//! here, nor how they were written; only where, for people who ask why a number applies.

pub mod condition;
pub mod cost;
mod index;
pub mod placement;
pub mod planning;
pub mod rule;
pub mod rule_limit;
pub mod rule_set;
pub mod subject_selector;
mod tree;

pub use condition::{Condition, Test};
pub use cost::Cost;
pub use placement::Placement;
pub use planning::{Planned, Request, RuleTrace};
pub use rule::{FailurePolicy, Missing, Mode, Origin, Override, Rollout, Rule};
pub use rule_limit::RuleLimit;
pub use rule_set::{RuleSet, RuleSetError};
pub use subject_selector::{SubjectParts, SubjectSelector};
