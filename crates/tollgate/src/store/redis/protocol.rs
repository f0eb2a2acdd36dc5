//! The wire format: Plans as calls of the Lua script, its replies as Outcomes, and the Redis protocol (RESP).

pub(crate) mod batch;
pub(crate) mod plan_codec;
pub(crate) mod resp;
pub(crate) mod script;
pub(crate) mod script_codec;
