//! Which server holds a key: the store's URL, the primary behind sentinels, the hash slots of a cluster.

pub(crate) mod address;
pub(crate) mod cluster;
pub(crate) mod hash_slot;
pub(crate) mod multi_slot;
pub(crate) mod primary_locator;
mod promotion;
pub(crate) mod sentinel;
pub(crate) mod url;
