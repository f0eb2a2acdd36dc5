//! Stores: where consumption is kept.
//!
//! Most applications choose a store by URL, with [`LimiterBuilder::store`](crate::LimiterBuilder::store). Implement
//! [`Store`] to bring your own, or to wrap another one.

#[cfg(all(test, feature = "rules"))]
pub(crate) mod down;
pub mod memory;
#[cfg(feature = "redis")]
pub mod redis;

pub use tollgate_core::{Exactness, Outcome, Plan, Store, StoreError, Time};
