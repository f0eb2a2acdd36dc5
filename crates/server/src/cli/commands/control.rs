//! Commands that change what running servers decide, and that show who changed what.

pub(crate) mod audit;
pub(crate) mod changes;
pub(crate) mod rules;
