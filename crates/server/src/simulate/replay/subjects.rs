//! Numbers per subject of one rule.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use tollgate::core::Subject;

/// What one subject was counted.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(in crate::simulate) struct SubjectTally {
    pub(in crate::simulate) checks: u32,
    pub(in crate::simulate) refused: u32,
    /// The slot of its rule's [`Live`](super::live::Live) in which its state ends.
    pub(super) ends_in: u32,
}

/// Numbers by subject. A subject is a keyed hash already, so it is not hashed again.
pub(in crate::simulate) type Subjects = HashMap<SubjectKey, SubjectTally, BuildHasherDefault<Passed>>;

/// A subject, in a form that leaves no gap in the table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(in crate::simulate) struct SubjectKey {
    high: u64,
    low: u64,
}

impl From<Subject> for SubjectKey {
    #[inline]
    fn from(subject: Subject) -> SubjectKey {
        let hash = subject.to_u128();
        SubjectKey { high: (hash >> 64) as u64, low: hash as u64 }
    }
}

impl SubjectKey {
    pub(in crate::simulate) fn subject(self) -> Subject {
        Subject::from_u128(u128::from(self.high) << 64 | u128::from(self.low))
    }
}

/// Passes the last word on.
#[derive(Default)]
pub(in crate::simulate) struct Passed(u64);

impl Hasher for Passed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        // Only words are hashed; this keeps any other key correct.
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        self.0 = word;
    }
}
