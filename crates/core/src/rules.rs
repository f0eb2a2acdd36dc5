//! Rules: which requests are limited, per which subject, by which limit.
//!
//! A [`RuleSet`] is compiled once and then only read. This module does not know whether rules come from a file, a preset
//! or code. It keeps only their [`Origin`], for explanations.

pub mod condition;
pub mod cost;
pub mod exclusion;
pub mod hashed;
mod index;
pub mod overlay;
pub mod placement;
pub mod planning;
pub mod preparation;
pub mod rule;
pub mod rule_limit;
pub mod rule_set;
pub mod subject_selector;
mod tree;

pub use condition::{Condition, Test};
pub use cost::Cost;
pub use exclusion::Exclusion;
pub use hashed::{HashedValues, SubjectTest};
pub use overlay::{LimitChange, LiveChanges, OverrideDraft};
pub use placement::Placement;
pub use planning::{Planned, Request, RuleTrace};
pub use preparation::{AmbiguousPaths, Normalization, Preparation, PreparedValues};
pub use rule::{FailurePolicy, Missing, Mode, Origin, Override, Rollout, Rule};
pub use rule_limit::RuleLimit;
pub use rule_set::{RuleSet, RuleSetError, Unmatched};
pub use subject_selector::{SubjectParts, SubjectSelector};
