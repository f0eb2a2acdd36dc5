//! The records of leases and reservations in one shard, next to the accounts that count their units.

use std::collections::HashMap;

use tollgate_core::{Hold, HoldChange, HoldLookup, HoldWrite, Time, Token};

use crate::store::memory::shard::EXPIRED_KEPT;

/// Most records in one shard: twice the leases of one subject. At the cap, records that have expired make room, and then those
/// of an account that has many: it cannot keep others out. A lease or reservation without room for its record is declined.
const HOLDS_MAX: usize = 1 << 17;
/// A new record examines this many others and removes those that have expired.
const SWEEP_RECORDS: usize = 4;
/// At the cap, it examines this many.
const EVICT_RECORDS: usize = 32;
/// At the cap, an account has many records if it has more than one of this many, which are spread evenly.
const SAMPLE: usize = 32;
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
            None if self.entries.len() < HOLDS_MAX => HoldLookup::None,
            None => match self.largest_account() {
                Some(largest) if largest.0 != id.0 => HoldLookup::None,
                _ => HoldLookup::NoRoom,
            },
        }
    }

    /// A record of the account with the most records in a sample; `None` if no account has several.
    fn largest_account(&self) -> Option<HoldId> {
        let len = self.entries.len();
        let indexes = (0..SAMPLE.min(len)).map(|number| (self.cursor + number * (len / SAMPLE)) % len);
        let sample: Vec<HoldId> = indexes.map(|index| self.entries[index].id).collect();
        let records_of = |id: &HoldId| sample.iter().filter(|other| other.0 == id.0).count();
        let largest = sample.iter().max_by_key(|id| records_of(id))?;
        (records_of(largest) > 1).then_some(*largest)
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
        if self.entries.len() < HOLDS_MAX {
            self.sweep(now.minus(EXPIRED_KEPT), SWEEP_RECORDS);
        } else if let Some(largest) = self.largest_account() {
            // Its units count until their end, as before. Its holder can no longer give them back.
            self.remove(largest);
        }
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
        // A record of each account.
        let record = |n: u64| ((n + 1).into(), change(n + 1, 1_000));
        for (account, change) in (0..HOLDS_MAX as u64).map(record) {
            holds.apply(account, &change, Time::ZERO);
        }
        let new = (u128::MAX, Token(1));
        assert_eq!(holds.get(new), HoldLookup::NoRoom);
        holds.apply(1, &HoldChange { token: Token(1), record: None }, Time::ZERO);
        assert_eq!(holds.get(new), HoldLookup::None);
        holds.apply(1, &change(1, 1_000), Time::ZERO);
        assert_eq!(holds.get(new), HoldLookup::NoRoom);
        holds.sweep(second(1_000), EVICT_RECORDS);
        assert_eq!(holds.get(new), HoldLookup::None);
    }

    #[test]
    fn an_account_that_fills_a_shard_makes_room_for_others_and_gets_none() {
        let mut holds = Holds::default();
        let of_other = |n: u64| (u128::from(n % 100) + 2, Token(n.into()));
        for n in 0..1_000 {
            holds.apply(of_other(n).0, &change(n, 1_000), Time::ZERO);
        }
        let mut taken = 0;
        while holds.get((1, Token(taken))) == HoldLookup::None {
            holds.apply(1, &change(taken as u64, 1_000), Time::ZERO);
            taken += 1;
        }
        assert_eq!(taken as usize, HOLDS_MAX - 1_000, "it gets all the room that is left");
        for n in 1_000..3_000 {
            assert_eq!(holds.get((1, Token(taken))), HoldLookup::NoRoom);
            assert_eq!(holds.get(of_other(n)), HoldLookup::None, "{n}");
            holds.apply(of_other(n).0, &change(n, 1_000), Time::ZERO);
            assert_eq!(holds.entries.len(), HOLDS_MAX);
        }
        assert!(
            (0..3_000).all(|n| matches!(holds.get(of_other(n)), HoldLookup::Found(_))),
            "no other lost one"
        );
    }
}
