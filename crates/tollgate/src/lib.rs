//! Admission control for Rust services: may this request, job or token spend proceed right now?
//!
//! ```
//! use tollgate::{Attributes, Limiter};
//!
//! let limiter = Limiter::from_yaml("
//!     version: 1
//!     rules:
//!       - id: search-per-key
//!         match: { action: search }
//!         per: api_key
//!         limit: { token-bucket: 2/s, burst: 5 }
//! ")?;
//!
//! let request = Attributes::from([("action", "search"), ("api_key", "k-123")]);
//! let decision = limiter.check_now(&request)?;
//! assert!(decision.allowed);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod clock;
pub mod limiter;
pub mod rules;
pub mod rules_file;
pub mod shorthand;
pub mod store;

pub use clock::{Clock, ManualClock, SystemClock};
pub use limiter::{Decision, Limiter, Permit, Reservation};
pub use store::memory::MemoryStore;
pub use tollgate_core as core;
pub use tollgate_core::Attributes;
pub use tollgate_core::rules::Request;
