//! Stores: where consumption is kept.
//!
//! Most applications choose a store by URL, with [`LimiterBuilder::store`](crate::LimiterBuilder::store). Implement
//! [`Store`] to bring your own, or to wrap another one.

pub mod memory;
#[cfg(feature = "redis")]
pub mod redis;

pub use tollgate_core::{Exactness, Outcome, Plan, Store, StoreError, Time};
