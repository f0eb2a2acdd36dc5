//! Admission control for Rust services: may this request, job or token spend proceed right now?
//!
//! ```
//! use tollgate::core::algorithm::bucket::Bucket;
//! use tollgate::core::{Decision, Item, Limit, OnFailure, Operation, Plan, Scope, Span, SubjectHasher};
//! use tollgate::MemoryStore;
//!
//! let store = MemoryStore::new();
//! let rule = Scope::new("shop-prod", "search-per-key")?;
//! let subjects = SubjectHasher::new([7; 32]);
//!
//! let mut plan = Plan::new();
//! plan.push(Item {
//!     key: rule.key(subjects.subject([("api_key", "k-123")])),
//!     limit: Limit::Bucket(Bucket::tokens(2, Span::from_secs(1), 5)?),
//!     operation: Operation::charge(1),
//!     blocking: true,
//!     on_failure: OnFailure::Closed,
//! })?;
//! let decision = Decision::new(&plan, Ok(&store.apply_now(&plan)))?;
//! assert!(decision.allowed);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod clock;
pub mod rules;
pub mod rules_file;
pub mod shorthand;
pub mod store;

pub use clock::{Clock, ManualClock, SystemClock};
pub use store::memory::MemoryStore;
pub use tollgate_core as core;
