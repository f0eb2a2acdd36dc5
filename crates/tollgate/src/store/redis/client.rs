//! The client: multiplexed connections to each Redis server, with a breaker and bounded queues.

pub(crate) mod breaker;
pub(crate) mod connection;
pub(crate) mod connector;
pub(crate) mod multiplexer;
pub(crate) mod node;
pub(crate) mod pending_plan;
pub(crate) mod permits;
pub(crate) mod window;
