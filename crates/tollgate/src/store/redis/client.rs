//! Connections to Redis servers: one multiplexed connection each, with a breaker and bounded queues.

pub(crate) mod caller;
pub(crate) mod connection;
pub(crate) mod health;
pub(crate) mod job;
pub(crate) mod lane;
pub(crate) mod node;
