//! The checks, in one file each.

pub(super) mod core_dependencies;
pub(super) mod core_purity;
pub(super) mod exceptions;
pub(super) mod faults;
pub(super) mod hygiene;
pub(super) mod links;
pub(super) mod markers;
pub(super) mod modules;
pub(super) mod phrases;
pub(super) mod requirements;
pub(super) mod size;
