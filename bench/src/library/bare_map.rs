//! No limiter: a sharded hash table that counts. The difference to it is what a limiter costs beyond a cache miss.

use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;
use parking_lot::Mutex;
use siphasher::sip128::{Hash128, SipHasher13};

use crate::contender::{Decide, Entrant};

pub(super) const KEYED: Entrant = Entrant::new(
    "bare map",
    "no limiter: a sharded `hashbrown` table that finds a key by its keyed hash and increments a number; it reads no clock",
    |_| Box::new(BareMap::new()),
);

const SHARDS: usize = 64;

struct BareMap {
    shards: Vec<Mutex<HashTable<Slot>>>,
    hasher: SipHasher13,
}

struct Slot {
    hash: [u64; 2],
    count: u64,
}

impl BareMap {
    fn new() -> BareMap {
        let random = RandomState::new();
        let hasher = SipHasher13::new_with_keys(random.hash_one(1), random.hash_one(2));
        BareMap { shards: (0..SHARDS).map(|_| Mutex::default()).collect(), hasher }
    }
}

impl Decide for BareMap {
    fn decide(&self, key: &String) -> bool {
        let Hash128 { h1, h2 } = self.hasher.hash(key.as_bytes());
        let mut shard = self.shards[h2 as usize % SHARDS].lock();
        let slot = shard.entry(h1, |slot| slot.hash == [h1, h2], |slot| slot.hash[0]);
        slot.and_modify(|slot| slot.count += 1).or_insert(Slot { hash: [h1, h2], count: 1 });
        true
    }
}
