//! The lints, by what they are about.

pub(super) mod attributes;
pub(super) mod dead_rules;
pub(super) mod failure_policies;
pub(super) mod interactions;
pub(super) mod layers;
pub(super) mod ledger;
pub(super) mod limits;
pub(super) mod old_keys;
pub(super) mod overrides;
pub(super) mod protection;
pub(super) mod slices;
pub(super) mod subjects;
pub(super) mod unmatched;
