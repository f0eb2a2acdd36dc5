//! A key together with the rule and the limit that write its state.

use tollgate_core::{Item, Limit, Subject, Time};

use super::classes::{ClassId, Classes};
use super::fast_path::admitted_charge::{PackedCharge, charge_packed};
use super::shard::slot::Slot;

/// A key, and what the store must know to read and write its state.
#[derive(Clone, Copy)]
pub(super) struct StateKey<'i> {
    pub(super) fingerprint: u128,
    /// The fingerprint of the rule's keyspace.
    pub(super) keyspace: u128,
    /// How many anonymous subjects may have separate state under the rule, if it says so and this is one.
    pub(super) ip_subjects_max: Option<u32>,
    pub(super) is_anonymous: bool,
    pub(super) limit: &'i Limit,
    /// The class of its state, if the caller looked it up in advance. Without it, a key of `Keyed` costs 1.06 to 1.11
    /// times the CPU (docs/decisions/0004, row "known class").
    pub(super) class: Option<ClassId>,
}

impl<'i> StateKey<'i> {
    #[inline]
    pub(super) fn of(item: &'i Item<'_>) -> StateKey<'i> {
        StateKey {
            fingerprint: item.key.fingerprint(),
            keyspace: item.key.keyspace().fingerprint(),
            ip_subjects_max: item.ip_subjects_max,
            is_anonymous: item.is_anonymous || item.ip_subjects_max.is_some(),
            limit: &item.limit,
            class: None,
        }
    }

    /// The key of the rule's overflow subject.
    pub(super) fn overflow(self) -> StateKey<'i> {
        // A key's fingerprint is that of its keyspace XOR its subject, as `Key` defines.
        let fingerprint = self.keyspace ^ Subject::OVERFLOW.to_u128();
        StateKey { fingerprint, ip_subjects_max: None, is_anonymous: false, ..self }
    }

    pub(super) const fn is_anonymous(&self) -> bool {
        self.is_anonymous
    }

    /// Whether state of this class is packed and was written by the same limit under the same rule.
    #[inline]
    pub(super) fn wrote(&self, classes: &Classes, class: ClassId) -> bool {
        Some(class) == self.class
            || classes.get(class).is_packed(self.keyspace, self.is_anonymous(), self.limit)
    }

    /// Charges `cost` to the packed state in this slot; `None` if it is not admitted or not packed. Writes nothing.
    #[inline(always)]
    pub(super) fn charge_packed(
        &self,
        classes: &Classes,
        slot: &Slot,
        now: Time,
        cost: u64,
    ) -> Option<PackedCharge<'i>> {
        slot.class().filter(|&class| self.wrote(classes, class))?;
        charge_packed(self.limit, slot.state(), now, cost)
    }
}
