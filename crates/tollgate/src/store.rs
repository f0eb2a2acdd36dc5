//! Stores: where state is kept.

pub mod memory;
