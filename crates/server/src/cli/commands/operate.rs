//! Commands that ask a running server. They change nothing.

pub(crate) mod doctor;
pub(crate) mod top;
pub(crate) mod usage;
pub(crate) mod why;
