//! What many keys have in common, stored once: their rule, and the limit that wrote their state.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{Arc, OnceLock};

use tollgate_core::Limit;

use super::sync::{AtomicUsize, Ordering, RwLock};

/// The id of a class. A slot has 22 bits for it; [`CLASSES_MAX`] needs 16.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ClassId(NonZeroU32);

impl ClassId {
    /// The class of heap state whose rule and limit are unknown.
    pub(super) const UNKNOWN: ClassId = ClassId(NonZeroU32::MIN);

    #[inline]
    pub(super) fn new(id: u32) -> Option<ClassId> {
        NonZeroU32::new(id).map(ClassId)
    }

    /// Returns the id, unless it is [`UNKNOWN`](ClassId::UNKNOWN).
    #[inline]
    pub(super) fn known(self) -> Option<ClassId> {
        Some(self).filter(|&class| class != ClassId::UNKNOWN)
    }

    #[inline]
    pub(super) const fn get(self) -> u32 {
        self.0.get()
    }

    #[inline]
    const fn index(self) -> usize {
        self.0.get() as usize
    }
}

/// What the keys of a class have in common.
#[derive(Clone, Debug)]
pub(super) struct Class {
    key: ClassKey,
    /// The number of keys of anonymous subjects under the same rule. Set for classes of such keys.
    pub(super) anonymous: Option<Arc<AtomicUsize>>,
}

/// What identifies a class.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct ClassKey {
    /// The fingerprint of the rule's keyspace.
    pub(super) keyspace: u128,
    /// Whether its subjects are anonymous.
    pub(super) anonymous: bool,
    pub(super) form: Form,
}

/// Where the state of a key is stored.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Form {
    /// In its slot, written by this limit.
    Packed(Limit),
    /// On the shard's heap.
    Heap,
}

const CHUNK: usize = 256;
/// Allocated with its first class.
type Chunk = Box<[OnceLock<Class>]>;
/// Far more than rules and overrides need. Callers that bring their own limits may exceed it; that state goes to the
/// heap.
const CLASSES_MAX: usize = 1 << 16;

/// All classes. Reads take no lock, inserts do, and classes are never removed: their number is bounded.
pub(super) struct Classes {
    chunks: Box<[OnceLock<Chunk>]>,
    index: RwLock<Index>,
}

#[derive(Default)]
struct Index {
    /// Callers may bring their own limits, so the hash is seeded. It need not be strong: there are few classes.
    ids: HashMap<ClassKey, ClassId, foldhash::fast::RandomState>,
    /// By keyspace.
    anonymous: HashMap<u128, Arc<AtomicUsize>, foldhash::fast::RandomState>,
}

impl Classes {
    pub(super) fn new() -> Classes {
        let chunks = (0..CLASSES_MAX / CHUNK).map(|_| OnceLock::new()).collect();
        let classes = Classes { chunks, index: RwLock::new(Index::default()) };
        let unknown = ClassKey { keyspace: 0, anonymous: false, form: Form::Heap };
        classes.put(ClassId::UNKNOWN, Class { key: unknown, anonymous: None });
        classes
    }

    #[inline]
    pub(super) fn get(&self, id: ClassId) -> &Class {
        let class = self.chunks[id.index() / CHUNK].get().and_then(|chunk| chunk[id.index() % CHUNK].get());
        class.expect("a class is stored before its id is returned")
    }

    /// Returns the id of this class, and inserts the class if it is new. Returns [`ClassId::UNKNOWN`] if ids are exhausted.
    pub(super) fn intern(&self, key: &ClassKey) -> ClassId {
        let id = self.index.read().ids.get(key).copied();
        id.unwrap_or_else(|| self.insert(key))
    }

    fn insert(&self, key: &ClassKey) -> ClassId {
        let mut index = self.index.write();
        if let Some(&id) = index.ids.get(key) {
            return id;
        }
        // 0 marks an empty slot and 1 is `UNKNOWN`.
        let id = index.ids.len() + 2;
        let Some(id) = ClassId::new(id as u32).filter(|_| id < CLASSES_MAX) else {
            return ClassId::UNKNOWN;
        };
        let anonymous = key.anonymous.then(|| Arc::clone(index.anonymous.entry(key.keyspace).or_default()));
        self.put(id, Class { key: *key, anonymous });
        index.ids.insert(*key, id);
        id
    }

    fn put(&self, id: ClassId, class: Class) {
        let chunk =
            self.chunks[id.index() / CHUNK].get_or_init(|| (0..CHUNK).map(|_| OnceLock::new()).collect());
        let put = chunk[id.index() % CHUNK].set(class);
        debug_assert!(put.is_ok(), "an id is used once");
    }

    /// The number of keys of anonymous subjects under this rule.
    pub(super) fn anonymous(&self, keyspace: u128) -> usize {
        self.index.read().anonymous.get(&keyspace).map_or(0, |count| count.load(Ordering::Relaxed))
    }
}

impl Class {
    pub(super) const fn form(&self) -> &Form {
        &self.key.form
    }

    pub(super) fn matches(&self, keyspace: u128, anonymous: bool, form: &Form) -> bool {
        self.key.keyspace == keyspace && self.key.anonymous == anonymous && self.key.form == *form
    }

    /// Whether its state is packed and was written by this limit.
    pub(super) fn is_packed(&self, keyspace: u128, anonymous: bool, limit: &Limit) -> bool {
        let same_limit = matches!(&self.key.form, Form::Packed(written_by) if written_by == limit);
        same_limit && self.key.keyspace == keyspace && self.key.anonymous == anonymous
    }
}
