//! What the store remembers beside consumption: requests that were answered, charges that were returned, and holds.

pub(crate) mod holds;
pub(crate) mod request_ids;
pub(crate) mod returns;
