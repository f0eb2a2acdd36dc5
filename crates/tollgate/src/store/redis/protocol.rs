//! The wire format: Plans as script calls, script replies as Outcomes, RESP.

pub(crate) mod batch;
pub(crate) mod reply;
pub(crate) mod script;
pub(crate) mod wire;
