//! Which subjects were refused most, and which are nearest to their limit: bounded lists for every rule.
//!
//! The first checks of every second and thread are all noted; of the others one in 64, on average, counts for all. So the
//! lists are exact while a server is calm, and cost a check almost nothing while it is busy.

mod nearest;
mod recent;
mod sampler;
mod space_saving;

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tollgate::core::decision::Numbers;
use tollgate::core::rules::Rule;
use tollgate::core::{Attributes, Subject};

pub(crate) use nearest::NearSubject;
use nearest::Nearest;
pub(crate) use recent::{RecentRefusal, RecentRefusals};
pub(crate) use sampler::Samplers;
use space_saving::SpaceSaving;

/// Subjects that each list keeps.
pub(crate) const SUBJECTS_MAX: usize = 64;
/// Rules that have lists. Further rules have none, and their number is reported.
pub(crate) const RULES_MAX: usize = 1_024;
/// Bytes of the attributes that a rule shows for one subject.
const SHOWN_BYTES_MAX: usize = 128;

static RULES_WITH_LISTS: AtomicUsize = AtomicUsize::new(0);

/// What a rule does with a subject.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum By {
    /// Refused.
    Refused,
    /// Would have been refused, if the rule were enforced.
    ShadowRefused,
    /// Has used the largest part of its limit.
    Used,
}

/// A subject in the answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct CountedSubject {
    pub(crate) subject: Subject,
    /// The values of the attributes that the rule shows.
    pub(crate) shown: Option<Box<str>>,
    /// How often, at most.
    pub(crate) count: u64,
    /// By how much the count may be too high.
    pub(crate) error: u64,
}

/// The lists of one rule. Empty, and without memory, until the first subject.
#[derive(Default)]
pub(crate) struct RuleSubjects(Mutex<Lists>);

#[derive(Default)]
enum Lists {
    #[default]
    None,
    Kept(Box<Kept>),
    /// Too many rules have lists.
    Untracked,
}

#[derive(Default)]
struct Kept {
    refused: Periods,
    shadow_refused: Periods,
    used: Nearest,
}

/// Counts of the current period and of the one before, so that old counts are forgotten.
#[derive(Default)]
struct Periods {
    current: SpaceSaving,
    previous: SpaceSaving,
}

impl RuleSubjects {
    /// Notes what the rule did with a subject. `weight` is the number of checks that this one stands for.
    #[cold]
    pub(crate) fn note(
        &self,
        by: By,
        subject: Subject,
        weight: u32,
        numbers: Option<&Numbers>,
        (rule, attributes): (&Rule, &Attributes<'_>),
    ) {
        let mut lists = self.0.lock();
        if let Lists::None = *lists {
            let are_too_many = RULES_WITH_LISTS.fetch_add(1, Ordering::Relaxed) >= RULES_MAX;
            *lists = if are_too_many { Lists::Untracked } else { Lists::Kept(Box::default()) };
        }
        let Lists::Kept(kept) = &mut *lists else { return };
        let shown = || shown(rule, attributes);
        match by {
            By::Refused => kept.refused.current.add(subject, weight.into(), shown),
            By::ShadowRefused => kept.shadow_refused.current.add(subject, weight.into(), shown),
            By::Used => (),
        }
        if let Some(numbers) = numbers {
            kept.used.note(subject, numbers, shown);
        }
    }

    /// The subjects of the current period and of the one before, the most frequent first.
    pub(crate) fn counted(&self, by: By) -> Vec<CountedSubject> {
        match &*self.0.lock() {
            Lists::Kept(kept) if by == By::Refused => kept.refused.merged(),
            Lists::Kept(kept) if by == By::ShadowRefused => kept.shadow_refused.merged(),
            _ => Vec::new(),
        }
    }

    /// The subjects that have used most of their limit, of those whose limit is not whole again.
    pub(crate) fn nearest(&self, now_ms: u64) -> Vec<NearSubject> {
        match &*self.0.lock() {
            Lists::Kept(kept) => kept.used.list(now_ms),
            _ => Vec::new(),
        }
    }

    /// Whether the rule has no lists because too many others have.
    pub(crate) fn is_untracked(&self) -> bool {
        matches!(*self.0.lock(), Lists::Untracked)
    }

    /// Begins a new period.
    pub(crate) fn begin_period(&self) {
        if let Lists::Kept(kept) = &mut *self.0.lock() {
            for periods in [&mut kept.refused, &mut kept.shadow_refused] {
                periods.previous = std::mem::take(&mut periods.current);
            }
        }
    }
}

impl Drop for RuleSubjects {
    fn drop(&mut self) {
        if !matches!(self.0.get_mut(), Lists::None) {
            RULES_WITH_LISTS.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Periods {
    fn merged(&self) -> Vec<CountedSubject> {
        let mut merged: Vec<CountedSubject> = self.current.list().to_vec();
        for before in self.previous.list() {
            match merged.iter_mut().find(|known| known.subject == before.subject) {
                Some(known) => {
                    known.count += before.count;
                    known.error += before.error;
                }
                None => merged.push(before.clone()),
            }
        }
        merged.sort_by_key(|counted| std::cmp::Reverse(counted.count));
        merged.truncate(SUBJECTS_MAX);
        merged
    }
}

/// The attributes that the rule shows, as `name=value` with spaces between.
fn shown(rule: &Rule, attributes: &Attributes<'_>) -> Option<Box<str>> {
    let mut text = String::new();
    for name in shown_names(rule) {
        let Some(value) = attributes.get(name) else { continue };
        let separator = if text.is_empty() { "" } else { " " };
        text += &format!("{separator}{name}={}", crate::text::excerpt(value, 32));
    }
    let end = text.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(|&end| end <= SHOWN_BYTES_MAX);
    let end = end.last().unwrap_or(0);
    text.truncate(end);
    (!text.is_empty()).then(|| text.into_boxed_str())
}

fn shown_names(_: &Rule) -> &[String] {
    &[]
}

#[cfg(test)]
mod tests;
