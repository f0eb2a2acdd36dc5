//! Stores: where state is kept.

pub mod memory;
#[cfg(feature = "redis")]
pub mod redis;
