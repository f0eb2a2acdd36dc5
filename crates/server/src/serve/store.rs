//! The store as the server sees it: its state, its evictions, and how callers share its calls.

pub(crate) mod evictions;
pub(crate) mod status;
pub(crate) mod watch;
pub(crate) mod work_share;
