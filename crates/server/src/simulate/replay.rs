//! Replays requests against one rule set: the library's own limiter on a simulated clock.

mod leases;
mod live;
mod subjects;
mod tally;
mod timeline;
mod trace;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use tollgate::core::rules::{Request, RuleSet};
use tollgate::core::{SubjectHasher, Time};
use tollgate::{Clock, LocalLimiter};

use super::traffic::records::{Batch, Names, RecordRef};
use leases::Leases;
pub(super) use subjects::SubjectKey;
pub(super) use tally::{RuleTally, Tally};
pub(super) use timeline::{Slot, Timeline};
pub(super) use trace::Trace;

/// Receipts must outlive the longest request whose lease is released.
const RECEIPT_LIFE: Duration = Duration::from_secs(8 * 86_400);

/// A rule set that requests are replayed against.
pub(super) struct Replay {
    limiter: LocalLimiter,
    clock: SimulatedClock,
    names: Arc<Names>,
    leases: Option<Leases>,
    now: Time,
    tally: Tally,
}

/// A clock that only the replay moves.
#[derive(Clone, Default)]
struct SimulatedClock {
    us: Arc<AtomicU64>,
}

impl Clock for SimulatedClock {
    #[inline]
    fn now(&self) -> Time {
        Time::from_us(self.us.load(Ordering::Relaxed))
    }
}

impl SimulatedClock {
    #[inline]
    fn set(&self, now: Time) {
        self.us.store(now.us(), Ordering::Relaxed);
    }
}

impl Replay {
    /// Starts from an empty store. `keeps_values` keeps the attribute values of refused subjects, for reports that show them.
    pub(super) fn new(
        rules: &RuleSet,
        hasher: &SubjectHasher,
        names: &Arc<Names>,
        keeps_values: bool,
    ) -> Result<Replay> {
        let clock = SimulatedClock::default();
        let limiter = LocalLimiter::builder()
            .rules(rules.clone())
            .clock(clock.clone())
            .hash_key(hasher.clone())
            .receipt_life(RECEIPT_LIFE)
            .build()?;
        Ok(Replay {
            limiter,
            clock,
            names: Arc::clone(names),
            leases: rules.takes_leases().then(Leases::default),
            now: Time::ZERO,
            tally: Tally::new(rules, keeps_values),
        })
    }

    /// Keeps the checks of every rule, for suggestions.
    pub(super) fn with_traces(mut self) -> Replay {
        self.tally.keep_traces();
        self
    }

    /// Replays the requests of a batch.
    pub(super) fn apply(&mut self, batch: &Batch) {
        for index in 0..batch.len() {
            self.check(batch.record(index));
        }
    }

    #[inline]
    fn check(&mut self, record: RecordRef<'_>) {
        let Replay { limiter, clock, names, leases, now, tally } = self;
        *now = record.at().max(*now);
        if let Some(leases) = leases {
            leases.release_until(*now, limiter, |at| clock.set(at));
        }
        clock.set(*now);
        let attributes = record.attributes(names);
        let request = Request::new(&attributes);
        let request = record.cost().map_or(request, |cost| request.cost(cost));
        match limiter.check(request) {
            Ok(decision) => {
                tally.note(*now, &decision, &attributes);
                if let Some(leases) = leases
                    && decision.allowed()
                    && let Some(duration_us) = record.duration_us()
                {
                    leases.hold(*now, duration_us, &decision);
                }
            }
            Err(error) => tally.note_undecided(*now, &error),
        }
    }

    /// Returns what was counted.
    pub(super) fn finish(self) -> Tally {
        self.tally
    }
}
