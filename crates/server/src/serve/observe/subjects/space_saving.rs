//! Counts the most frequent subjects in fixed memory (the space-saving algorithm of Metwally, Agrawal and El Abbadi).

use tollgate::core::Subject;

use super::{CountedSubject, SUBJECTS_MAX};

/// The most frequent subjects. One that has more than a 64th of all counts is always among them. A count is never too low,
/// and too high by at most its error.
#[derive(Default)]
pub(super) struct SpaceSaving {
    entries: Vec<CountedSubject>,
}

impl SpaceSaving {
    /// Counts a subject. A new one takes the place of the least frequent one, and inherits its count as a possible error.
    pub(super) fn add(&mut self, subject: Subject, weight: u64, shown: impl FnOnce() -> Option<Box<str>>) {
        if let Some(known) = self.entries.iter_mut().find(|known| known.subject == subject) {
            known.count = known.count.saturating_add(weight);
            return;
        }
        if self.entries.len() < SUBJECTS_MAX {
            self.entries.push(CountedSubject { subject, shown: shown(), count: weight, error: 0 });
        } else if let Some(least) = self.entries.iter_mut().min_by_key(|known| known.count) {
            let error = least.count;
            *least = CountedSubject { subject, shown: shown(), count: error.saturating_add(weight), error };
        }
    }

    pub(super) fn list(&self) -> &[CountedSubject] {
        &self.entries
    }
}
