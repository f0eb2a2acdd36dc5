//! The records of leases and reservations in one shard, next to the accounts that count their units.

use std::collections::HashMap;

use tollgate_core::{Hold, HoldChange, HoldLookup, HoldWrite, Time, Token};

use crate::store::memory::shard::EXPIRED_KEPT;

/// Most records in one shard: twice the leases of one subject. At the cap, records that have expired make room; a lease or
/// reservation without room for its record is declined.
const HOLDS_MAX: usize = 1 << 17;
/// A new record examines this many others and removes those that have expired.
const SWEEP_RECORDS: usize = 4;
/// At the cap, it examines this many.
const EVICT_RECORDS: usize = 32;
/// An empty map of at most this many records keeps its memory.
const SMALL: usize = 64;

/// The fingerprint of the account's key, and the token.
pub(crate) type HoldId = (u128, Token);

/// Records by id. The vector has no gaps, so that a cursor can search it for expired records.
#[derive(Default)]
pub(crate) struct Holds {
    indexes: HashMap<HoldId, u32, foldhash::fast::RandomState>,
    entries: Vec<Entry>,
    /// Where the next search for expired records starts.
    cursor: usize,
}

struct Entry {
    id: HoldId,
    write: HoldWrite,
}

impl Holds {
    pub(crate) fn get(&self, id: HoldId) -> HoldLookup<'_> {
        match self.indexes.get(&id) {
            Some(&index) => HoldLookup::Found(&self.entries[index as usize].write.hold),
            None if self.entries.len() >= HOLDS_MAX => HoldLookup::NoRoom,
            None => HoldLookup::None,
        }
    }

    /// Writes or deletes the record of this account's key.
    pub(crate) fn apply(&mut self, fingerprint: u128, change: &HoldChange, now: Time) {
        let id = (fingerprint, change.token);
        match change.record {
            Some(write) => self.put(id, write, now),
            None => self.remove(id),
        }
    }

    fn put(&mut self, id: HoldId, write: HoldWrite, now: Time) {
        if let Some(&index) = self.indexes.get(&id) {
            self.entries[index as usize].write = write;
            return;
        }
        self.sweep(now.minus(EXPIRED_KEPT), SWEEP_RECORDS);
        self.indexes.insert(id, self.entries.len() as u32);
        self.entries.push(Entry { id, write });
        if self.entries.len() >= HOLDS_MAX {
            self.sweep(now, EVICT_RECORDS);
        }
    }

    fn remove(&mut self, id: HoldId) {
        let Some(index) = self.indexes.remove(&id) else { return };
        self.entries.swap_remove(index as usize);
        if let Some(moved) = self.entries.get(index as usize) {
            self.indexes.insert(moved.id, index);
        }
        if self.entries.is_empty() && self.entries.capacity() > SMALL {
            *self = Holds::default();
        }
    }

    /// Examines the next records and removes those that have expired by `at`.
    pub(crate) fn sweep(&mut self, at: Time, records: usize) {
        for _ in 0..records.min(self.entries.len()) {
            if self.cursor >= self.entries.len() {
                self.cursor = 0;
            }
            match self.entries.get(self.cursor) {
                // Another record moves into this place: examine it next.
                Some(entry) if entry.write.dies_at <= at => self.remove(entry.id),
                _ => self.cursor += 1,
            }
        }
    }

    /// Every record, for a snapshot.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (HoldId, Hold, Time)> + '_ {
        self.entries.iter().map(|entry| (entry.id, entry.write.hold, entry.write.dies_at))
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::{Generation, HoldStatus};

    use super::*;

    fn change(token: u64, end_s: u64) -> HoldChange {
        let end = Time::from_us(end_s * 1_000_000);
        let hold = Hold { generation: Generation::NONE, end, units: 1, status: HoldStatus::Open };
        HoldChange { token: Token(token.into()), record: Some(HoldWrite { hold, dies_at: end }) }
    }

    fn second(n: u64) -> Time {
        Time::from_us(n * 1_000_000)
    }

    #[test]
    fn expired_records_are_removed_as_new_ones_arrive() {
        let mut holds = Holds::default();
        for n in 0..100_000 {
            holds.apply(1, &change(n + 1, n + 100), second(n));
        }
        assert!(holds.entries.len() < 400, "{} records, of which 100 are live", holds.entries.len());
        assert_eq!(holds.entries.len(), holds.indexes.len());
        let newest = (1, Token(100_000));
        assert!(matches!(holds.get(newest), HoldLookup::Found(hold) if hold.end == second(100_099)));
    }

    #[test]
    fn a_full_shard_has_no_room_until_a_record_is_removed_or_expires() {
        let mut holds = Holds::default();
        for n in 0..HOLDS_MAX as u64 {
            holds.apply(1, &change(n + 1, 1_000), Time::ZERO);
        }
        assert_eq!(holds.get((2, Token(1))), HoldLookup::NoRoom);
        holds.apply(1, &HoldChange { token: Token(1), record: None }, Time::ZERO);
        assert_eq!(holds.get((2, Token(1))), HoldLookup::None);
        holds.apply(1, &change(1, 1_000), Time::ZERO);
        assert_eq!(holds.get((2, Token(1))), HoldLookup::NoRoom);
        holds.sweep(second(1_000), EVICT_RECORDS);
        assert_eq!(holds.get((2, Token(1))), HoldLookup::None);
    }
}
