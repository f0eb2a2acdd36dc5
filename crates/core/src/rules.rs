//! Rules: which limits a request meets, on whose account, in what numbers.
//!
//! A [`RuleSet`] is compiled once and only read after that. Where rules come from (a file, a preset, code) is not known
//! here, nor how they were written; only where, for people who ask why a number applies.

pub mod condition;
pub mod cost;
mod index;
pub mod per;
pub mod placement;
pub mod planning;
pub mod rule;
pub mod rule_limit;
pub mod rule_set;
mod tree;

pub use condition::{Condition, Test};
pub use cost::Cost;
pub use per::{Per, Subjects};
pub use placement::Placement;
pub use planning::{Explained, Planned, Request};
pub use rule::{FailureRule, Missing, Mode, Origin, Override, Rollout, Rule};
pub use rule_limit::RuleLimit;
pub use rule_set::{RuleSet, RuleSetError};
