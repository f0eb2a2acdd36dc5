//! The last refusals, so that a subject can ask why it was refused a few minutes ago.
//!
//! Subjects share parts by their hash, and refusals of one subject by one rule within a second are one entry. So a subject
//! that floods fills its own part with one entry a second, and the memory is fixed.

use parking_lot::Mutex;
use tollgate::Decision;
use tollgate::core::Subject;
use tollgate::core::decision::{RetryAfter, Source};

const PARTS: usize = 64;
/// Entries of each part; the oldest one is overwritten.
const ENTRIES: usize = 64;
/// Refusals within this time of the first are one entry.
const TOGETHER_MS: u64 = 1_000;

/// Refusals of one subject by one rule within a second.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RecentRefusal {
    pub(crate) subject: Subject,
    pub(crate) rule: String,
    /// When the first and the last were, in milliseconds since 1970.
    pub(crate) first_ms: u64,
    pub(crate) last_ms: u64,
    pub(crate) count: u64,
    /// What decided the last one, and its numbers.
    pub(crate) source: Source,
    pub(crate) cost: u64,
    pub(crate) limit: Option<u64>,
    pub(crate) remaining: Option<u64>,
    pub(crate) retry_after_ms: Option<u64>,
}

/// The last refusals of this server.
pub(crate) struct RecentRefusals {
    parts: Box<[Mutex<Part>]>,
}

#[derive(Default)]
struct Part {
    entries: Vec<RecentRefusal>,
    /// Where the next entry goes once the part is full.
    next: usize,
}

impl Default for RecentRefusals {
    fn default() -> RecentRefusals {
        RecentRefusals { parts: (0..PARTS).map(|_| Mutex::default()).collect() }
    }
}

impl RecentRefusals {
    /// Notes every rule that refused.
    #[cold]
    pub(crate) fn note(&self, decision: &Decision) {
        let now_ms = decision.decided_at().us() / 1_000;
        for rule in decision.rules().filter(|rule| rule.blocking() && !rule.allowed()) {
            // A rule that refuses without counting has no subject. `explain` shows why it refuses.
            let Some(subject) = rule.subject() else { continue };
            let outcome = rule.outcome();
            let numbers = outcome.numbers;
            let mut part = self.part(subject).lock();
            let entry = part.entry(subject, rule.id(), now_ms);
            entry.count += 1;
            entry.last_ms = entry.last_ms.max(now_ms);
            (entry.source, entry.cost) = (decision.source(), outcome.cost);
            entry.limit = numbers.map(|numbers| numbers.limit);
            entry.remaining = numbers.map(|numbers| numbers.remaining);
            entry.retry_after_ms = numbers.and_then(|numbers| match numbers.retry_after {
                RetryAfter::Ms(ms) => Some(ms),
                RetryAfter::Never => None,
            });
        }
    }

    /// The refusals of these subjects, the last one first.
    pub(crate) fn of(&self, subjects: &[Subject]) -> Vec<RecentRefusal> {
        let mut found = Vec::new();
        for (index, &subject) in subjects.iter().enumerate() {
            if subjects[..index].contains(&subject) {
                continue;
            }
            let part = self.part(subject).lock();
            found.extend(part.entries.iter().filter(|entry| entry.subject == subject).cloned());
        }
        found.sort_by_key(|entry| std::cmp::Reverse(entry.last_ms));
        found
    }

    fn part(&self, subject: Subject) -> &Mutex<Part> {
        // The hash begins with the id of the key, and ends with random bits.
        &self.parts[subject.to_u128() as usize % PARTS]
    }
}

impl Part {
    /// The entry of a subject and a rule in this second; or else a new one.
    fn entry(&mut self, subject: Subject, rule: &str, now_ms: u64) -> &mut RecentRefusal {
        let known = self.entries.iter().position(|entry| {
            entry.subject == subject
                && entry.rule == rule
                && now_ms < entry.first_ms.saturating_add(TOGETHER_MS)
                && entry.first_ms <= now_ms.saturating_add(TOGETHER_MS)
        });
        let index = match known {
            Some(index) => return &mut self.entries[index],
            None if self.entries.len() < ENTRIES => {
                self.entries.push(RecentRefusal::new(subject));
                self.entries.len() - 1
            }
            None => {
                let index = self.next;
                self.next = (self.next + 1) % ENTRIES;
                index
            }
        };
        let entry = &mut self.entries[index];
        // The text of the overwritten entry is used again.
        let mut text = std::mem::take(&mut entry.rule);
        text.clear();
        text.push_str(rule);
        *entry =
            RecentRefusal { rule: text, first_ms: now_ms, last_ms: now_ms, ..RecentRefusal::new(subject) };
        entry
    }
}

impl RecentRefusal {
    fn new(subject: Subject) -> RecentRefusal {
        RecentRefusal {
            subject,
            rule: String::new(),
            first_ms: 0,
            last_ms: 0,
            count: 0,
            source: Source::Store,
            cost: 0,
            limit: None,
            remaining: None,
            retry_after_ms: None,
        }
    }
}
