//! What happened lately, in fixed memory: the last two minutes by second, the last hour by ten seconds, the last day by
//! minute.
//!
//! Once per second a sampler reads the counters that checks add to. Checks themselves pay nothing. The dashboard reads the
//! result as `/v1/history`, and the latest second as the event stream `/v1/events`.

mod latency;
mod report;
mod rings;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

pub(crate) use latency::LatencyCounts;
pub(crate) use report::Range;
pub(crate) use rings::Columns;
use rings::{Rings, Timeline};

/// Rules with a history. Further rules share one.
const RULES_MAX: usize = 800;
/// The name under which rules beyond [`RULES_MAX`] are shown.
const OTHER: &str = "(other)";
/// Browsers that follow the events at once.
const VIEWERS_MAX: usize = 16;

/// How often the counters are read.
pub(crate) const SAMPLE_EVERY: Duration = Duration::from_secs(1);

/// The sums of one rule's counters since the start, or of the whole server's.
pub(crate) type Sums = [u64; Columns::COUNT];

/// The counters of the whole server at one instant.
pub(crate) struct Sample {
    /// Seconds since 1970.
    pub(crate) at_s: u64,
    /// All checks. Shadow refusals and admissions near a limit are those of the rules.
    pub(crate) total: Sums,
    /// Each rule in force.
    pub(crate) rules: Vec<(Arc<str>, Sums)>,
    /// Calls of the store since the start, by latency.
    pub(crate) store: [u64; LatencyCounts::BUCKETS],
}

/// The history of one server.
pub(crate) struct History {
    inner: Mutex<Inner>,
    latest: watch::Sender<Bytes>,
    viewers: Arc<Semaphore>,
}

struct Inner {
    timeline: Timeline,
    total: Series<{ Columns::COUNT }>,
    rules: HashMap<Arc<str>, Series<{ Columns::COUNT }>>,
    store: Series<{ LatencyCounts::BUCKETS }>,
}

/// The rings of some counters, and their sums at the last sample.
struct Series<const COLUMNS: usize> {
    rings: Rings<COLUMNS>,
    before: [u64; COLUMNS],
}

impl<const COLUMNS: usize> Series<COLUMNS> {
    fn new() -> Series<COLUMNS> {
        Series { rings: Rings::new(), before: [0; COLUMNS] }
    }

    /// Returns what the counters have gained. A counter below its last sum was started again by a change of rules.
    fn gain(&mut self, sums: &[u64; COLUMNS]) -> [u32; COLUMNS] {
        let mut gained = [0; COLUMNS];
        for ((gained, &now), before) in gained.iter_mut().zip(sums).zip(&mut self.before) {
            *gained = u32::try_from(now.checked_sub(*before).unwrap_or(now)).unwrap_or(u32::MAX);
            *before = now;
        }
        gained
    }
}

impl Default for History {
    fn default() -> History {
        History {
            inner: Mutex::new(Inner {
                timeline: Timeline::default(),
                total: Series::new(),
                rules: HashMap::new(),
                store: Series::new(),
            }),
            latest: watch::channel(Bytes::new()).0,
            viewers: Arc::new(Semaphore::new(VIEWERS_MAX)),
        }
    }
}

impl History {
    /// Takes a sample. Called once per second, always by the same task.
    pub(crate) fn note(&self, sample: &Sample) {
        let mut guard = self.inner.lock();
        let inner = &mut *guard;
        let starts = inner.timeline.is_empty();
        inner.timeline.advance(sample.at_s);
        if starts {
            // What was counted before the first sample has no second that it belongs to.
            inner.total.before = sample.total;
            inner.store.before = sample.store;
        }
        inner.forget_removed_rules(&sample.rules);
        let mut gained_by_rules = [0_u32; Columns::COUNT];
        let mut other = [0_u64; Columns::COUNT];
        for (rule, sums) in &sample.rules {
            if !inner.rules.contains_key(rule) {
                if inner.rules.len() >= RULES_MAX {
                    add(&mut other, sums);
                    continue;
                }
                let before = if starts { *sums } else { [0; Columns::COUNT] };
                inner.rules.insert(Arc::clone(rule), Series { rings: Rings::new(), before });
            }
            if let Some(series) = inner.rules.get_mut(rule) {
                let gained = series.gain(sums);
                series.rings.add(&inner.timeline, &gained);
                for (sum, gained) in gained_by_rules.iter_mut().zip(gained) {
                    *sum = sum.saturating_add(gained);
                }
            }
        }
        if other.iter().any(|&sum| sum > 0) || inner.rules.contains_key(OTHER) {
            let series = inner.rules.entry(Arc::from(OTHER)).or_insert_with(Series::new);
            let gained = series.gain(&other);
            series.rings.add(&inner.timeline, &gained);
        }
        let mut total = inner.total.gain(&sample.total);
        for column in [Columns::SHADOW_REFUSED, Columns::NEAR_LIMIT] {
            total[column] = gained_by_rules[column];
        }
        inner.total.rings.add(&inner.timeline, &total);
        let calls = inner.store.gain(&sample.store);
        inner.store.rings.add(&inner.timeline, &calls);
    }

    /// Whether a browser follows the events.
    pub(crate) fn has_viewers(&self) -> bool {
        self.latest.receiver_count() > 0
    }

    /// Publishes the latest second to all viewers.
    pub(crate) fn publish(&self, event: Bytes) {
        self.latest.send_replace(event);
    }

    /// Returns the events from the next one on, and a place among the viewers. `None` if there are too many.
    pub(crate) fn follow(&self) -> Option<(watch::Receiver<Bytes>, OwnedSemaphorePermit)> {
        let place = Arc::clone(&self.viewers).try_acquire_owned().ok()?;
        Some((self.latest.subscribe(), place))
    }
}

impl Inner {
    /// Makes room for new rules, if it is needed: drops the history of rules that are no longer in force.
    fn forget_removed_rules(&mut self, in_force: &[(Arc<str>, Sums)]) {
        if self.rules.len() < RULES_MAX || in_force.iter().all(|(rule, _)| self.rules.contains_key(rule)) {
            return;
        }
        let known: std::collections::HashSet<&str> = in_force.iter().map(|(rule, _)| &**rule).collect();
        self.rules.retain(|rule, _| &**rule == OTHER || known.contains(&**rule));
    }
}

fn add(sums: &mut Sums, more: &Sums) {
    for (sum, more) in sums.iter_mut().zip(more) {
        *sum += more;
    }
}

#[cfg(test)]
mod tests;
