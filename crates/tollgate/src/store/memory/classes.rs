//! What many keys have in common, written once: their rule, and the limit that wrote their state.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{Arc, OnceLock};

use tollgate_core::Limit;

use super::sync::{AtomicUsize, Ordering, RwLock};

/// The number of a class. A slot has room for 22 bits of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ClassId(NonZeroU32);

impl ClassId {
    /// The class of state that lies on the heap and of which nothing else is known.
    pub(super) const ANY: ClassId = ClassId(NonZeroU32::MIN);

    pub(super) fn new(number: u32) -> Option<ClassId> {
        NonZeroU32::new(number).map(ClassId)
    }

    /// Itself, if it says anything about the limit that wrote the state.
    pub(super) fn known(self) -> Option<ClassId> {
        Some(self).filter(|&class| class != ClassId::ANY)
    }

    pub(super) const fn get(self) -> u32 {
        self.0.get()
    }

    const fn index(self) -> usize {
        self.0.get() as usize
    }
}

/// What the keys of a class have in common.
#[derive(Clone, Debug)]
pub(super) struct Class {
    key: ClassKey,
    /// How many keys there are under the same rule whose subject nobody vouches for; set for classes of such keys.
    pub(super) anonymous: Option<Arc<AtomicUsize>>,
}

/// What tells classes apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct ClassKey {
    /// The fingerprint of the rule's scope.
    pub(super) scope: u128,
    /// Whether nobody vouches for its subjects.
    pub(super) anonymous: bool,
    pub(super) form: Form,
}

/// Where the state of a key is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Form {
    /// In its slot, written by this limit.
    Packed(Limit),
    /// On the shard's heap.
    Heap,
}

const CHUNK: usize = 256;
/// Made when the first of its classes is.
type Chunk = Box<[OnceLock<Class>]>;
/// Far more than rules and overrides; limits that callers make up as they go may come to more, and go to the heap.
const CLASSES_MAX: usize = 1 << 16;

/// All classes. They are read without a lock, made under one, and never forgotten: their number is bounded.
pub(super) struct Classes {
    chunks: Box<[OnceLock<Chunk>]>,
    made: RwLock<Made>,
}

#[derive(Default)]
struct Made {
    /// Callers may bring limits of their own, so the hash has a seed; it need not be a strong one, because there are
    /// not many classes.
    ids: HashMap<ClassKey, ClassId, foldhash::fast::RandomState>,
    /// By scope.
    anonymous: HashMap<u128, Arc<AtomicUsize>, foldhash::fast::RandomState>,
}

impl Classes {
    pub(super) fn new() -> Classes {
        let chunks = (0..CLASSES_MAX / CHUNK).map(|_| OnceLock::new()).collect();
        let classes = Classes { chunks, made: RwLock::new(Made::default()) };
        let any = Class { key: ClassKey { scope: 0, anonymous: false, form: Form::Heap }, anonymous: None };
        classes.put(ClassId::ANY, any);
        classes
    }

    /// The class with this number.
    pub(super) fn get(&self, id: ClassId) -> &Class {
        let class = self.chunks[id.index() / CHUNK].get().and_then(|chunk| chunk[id.index() % CHUNK].get());
        class.expect("a number is given out after its class is there")
    }

    /// The number of this class, made if it is new. Once there are too many, state goes to the heap.
    pub(super) fn intern(&self, key: &ClassKey) -> ClassId {
        let known = self.made.read().ids.get(key).copied();
        known.unwrap_or_else(|| self.make(key))
    }

    fn make(&self, key: &ClassKey) -> ClassId {
        let mut made = self.made.write();
        if let Some(&id) = made.ids.get(key) {
            return id;
        }
        // 0 is no number and 1 is taken.
        let number = made.ids.len() + 2;
        let Some(id) = ClassId::new(number as u32).filter(|_| number < CLASSES_MAX) else {
            return ClassId::ANY;
        };
        let anonymous = key.anonymous.then(|| Arc::clone(made.anonymous.entry(key.scope).or_default()));
        self.put(id, Class { key: *key, anonymous });
        made.ids.insert(*key, id);
        id
    }

    fn put(&self, id: ClassId, class: Class) {
        let chunk =
            self.chunks[id.index() / CHUNK].get_or_init(|| (0..CHUNK).map(|_| OnceLock::new()).collect());
        let put = chunk[id.index() % CHUNK].set(class);
        debug_assert!(put.is_ok(), "a number is given out once");
    }

    /// How many keys this rule has whose subject nobody vouches for.
    pub(super) fn anonymous(&self, scope: u128) -> usize {
        self.made.read().anonymous.get(&scope).map_or(0, |count| count.load(Ordering::Relaxed))
    }
}

impl Class {
    pub(super) const fn form(&self) -> &Form {
        &self.key.form
    }

    pub(super) fn is(&self, scope: u128, anonymous: bool, form: &Form) -> bool {
        self.key.scope == scope && self.key.anonymous == anonymous && self.key.form == *form
    }

    /// Whether its state lies in slots and was written by this limit.
    pub(super) fn is_packed(&self, scope: u128, anonymous: bool, limit: &Limit) -> bool {
        let written_by = matches!(&self.key.form, Form::Packed(own) if own == limit);
        written_by && self.key.scope == scope && self.key.anonymous == anonymous
    }
}
