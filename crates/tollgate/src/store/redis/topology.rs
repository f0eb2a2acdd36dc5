//! Where state is stored: the URL, the primary behind sentinels, the hash slots of a cluster.

pub(crate) mod cluster;
pub(crate) mod sentinel;
pub(crate) mod slot;
pub(crate) mod split;
pub(crate) mod target;
pub(crate) mod whereabouts;
