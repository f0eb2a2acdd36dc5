//! Where requests come from: logs, captures, or invented traffic, and how they become requests in the order of their start.

pub(crate) mod captured_value;
pub(crate) mod format;
pub(in crate::simulate) mod input;
pub(in crate::simulate) mod instant;
pub(in crate::simulate) mod log;
pub(crate) mod mapping;
pub(in crate::simulate) mod merge;
pub(in crate::simulate) mod order;
pub(in crate::simulate) mod records;
pub(crate) mod synthetic;
