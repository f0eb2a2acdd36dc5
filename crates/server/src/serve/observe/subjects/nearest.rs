//! The subjects that have used the largest part of their limit.

use std::cmp::Reverse;

use tollgate::core::Subject;
use tollgate::core::decision::Numbers;

use super::SUBJECTS_MAX;

/// One part in this many.
const PARTS: u128 = 1_000;

/// A subject and the numbers of its last noted check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct NearSubject {
    pub(crate) subject: Subject,
    /// The values of the attributes that the rule shows.
    pub(crate) shown: Option<Box<str>>,
    pub(crate) limit: u64,
    pub(crate) remaining: u64,
    /// When the whole limit is available again if nothing else is charged.
    pub(crate) reset_at_ms: u64,
}

/// The subjects nearest to their limits, as far as their checks were noted.
#[derive(Default)]
pub(super) struct Nearest {
    entries: Vec<NearSubject>,
}

impl NearSubject {
    /// The used part of the limit in thousandths.
    pub(crate) fn used_permille(&self) -> u64 {
        let used = self.limit.saturating_sub(self.remaining);
        u64::try_from(u128::from(used) * PARTS / u128::from(self.limit.max(1))).unwrap_or(u64::MAX)
    }
}

impl Nearest {
    /// Notes the numbers of a check. A subject that has used little is not kept if the list is full.
    pub(super) fn note(
        &mut self,
        subject: Subject,
        numbers: &Numbers,
        shown: impl FnOnce() -> Option<Box<str>>,
    ) {
        let Numbers { limit, remaining, reset_at_ms, reset_after_ms, .. } = *numbers;
        if let Some(known) = self.entries.iter_mut().find(|known| known.subject == subject) {
            (known.limit, known.remaining, known.reset_at_ms) = (limit, remaining, reset_at_ms);
            return;
        }
        let mut near = NearSubject { subject, shown: None, limit, remaining, reset_at_ms };
        if self.entries.len() < SUBJECTS_MAX {
            near.shown = shown();
            self.entries.push(near);
            return;
        }
        // One whose limit is whole again makes room first. The store's time is that of the numbers.
        let now_ms = reset_at_ms.saturating_sub(reset_after_ms);
        let place =
            |known: &NearSubject| if known.reset_at_ms <= now_ms { 0 } else { 1 + known.used_permille() };
        let used = 1 + near.used_permille();
        if let Some(least) = self.entries.iter_mut().min_by_key(|known| place(known))
            && place(least) < used
        {
            near.shown = shown();
            *least = near;
        }
    }

    /// Those whose limit is not whole again, the nearest to its limit first.
    pub(super) fn list(&self, now_ms: u64) -> Vec<NearSubject> {
        let mut list: Vec<_> =
            self.entries.iter().filter(|near| near.reset_at_ms > now_ms).cloned().collect();
        list.sort_by_key(|near| Reverse(near.used_permille()));
        list
    }
}
