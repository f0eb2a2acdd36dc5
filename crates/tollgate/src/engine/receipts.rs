//! What receipts are made of: the number of a charge, the name of a hold, and a sealed text for callers that keep them.

pub(super) mod nonces;
pub(super) mod sealed;
pub(super) mod tokens;
