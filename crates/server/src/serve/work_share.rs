//! Limits the work of each caller that waits for the store, so that one caller's load delays another's checks less.
//!
//! The share of a caller shrinks while the store is slow: the more calls wait, the longer each of them takes. An overloaded
//! caller is refused; a store that does not answer at all is the business of the rules' failure policies.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::edge::auth::Caller;
use super::observe::{Exposition, Kind, StoreCalls};
use crate::access::InFlight;

/// A share is never smaller.
const SHARE_MIN: usize = 4;
/// While calls take longer than this part of the deadline, shares shrink in proportion.
const UNHURRIED_PART: u32 = 8;

/// Limits the calls of each caller.
pub(crate) struct WorkShares {
    /// `None` if nothing waits: the memory store answers at once.
    store: Option<Arc<StoreCalls>>,
    max: usize,
    unhurried_us: u64,
    refused: AtomicU64,
}

/// Counted calls of a caller. Dropping it ends them.
pub(crate) struct WorkPermit {
    taken: Option<(Arc<InFlight>, usize)>,
}

/// A caller has too many calls that wait for the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Overloaded;

impl WorkShares {
    /// Shares of calls to a store with this deadline.
    pub(crate) fn of_store(store: Arc<StoreCalls>, deadline: Duration, max: usize) -> WorkShares {
        let unhurried_us = (deadline / UNHURRIED_PART).as_micros() as u64;
        // Until calls were measured, the store counts as slow.
        store.expect_latency(deadline / 2);
        WorkShares { store: Some(store), max, unhurried_us, refused: AtomicU64::new(0) }
    }

    /// No limits, for a store that answers at once.
    pub(crate) const fn unlimited() -> WorkShares {
        WorkShares { store: None, max: usize::MAX, unhurried_us: 0, refused: AtomicU64::new(0) }
    }

    /// Counts this many calls of a caller, if its share allows them. A caller without any can always make them.
    #[inline]
    pub(crate) fn enter(&self, caller: &Caller, calls: usize) -> Result<WorkPermit, Overloaded> {
        match (&self.store, caller.in_flight()) {
            (Some(store), Some(in_flight)) if calls > 0 => {
                self.take(in_flight, calls, store.typical_latency_us())
            }
            _ => Ok(WorkPermit { taken: None }),
        }
    }

    fn take(
        &self,
        in_flight: &Arc<InFlight>,
        calls: usize,
        latency_us: u64,
    ) -> Result<WorkPermit, Overloaded> {
        let before = in_flight.add(calls);
        // Dropping the permit corrects the count.
        let permit = WorkPermit { taken: Some((Arc::clone(in_flight), calls)) };
        if before > 0 && before + calls > self.share(latency_us) {
            self.refused.fetch_add(calls as u64, Ordering::Relaxed);
            return Err(Overloaded);
        }
        Ok(permit)
    }

    /// The calls of one caller while a call typically takes this long.
    fn share(&self, latency_us: u64) -> usize {
        if latency_us <= self.unhurried_us {
            return self.max;
        }
        let share = self.max as u128 * u128::from(self.unhurried_us) / u128::from(latency_us);
        (share as usize).max(SHARE_MIN.min(self.max))
    }

    pub(crate) fn write(&self, page: &mut Exposition) {
        let Some(store) = &self.store else { return };
        page.single(
            "tollgate_caller_in_flight_max",
            Kind::Gauge,
            "Calls of one caller that may wait for the store now; fewer while the store is slow.",
            self.share(store.typical_latency_us()),
        );
        page.single(
            "tollgate_overloaded_total",
            Kind::Counter,
            "Calls that were refused because their caller had too many in flight.",
            self.refused.load(Ordering::Relaxed),
        );
    }
}

impl Drop for WorkPermit {
    fn drop(&mut self) {
        if let Some((in_flight, calls)) = &self.taken {
            in_flight.remove(*calls);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(max: usize) -> WorkShares {
        WorkShares::of_store(Arc::default(), Duration::from_millis(80), max)
    }

    #[test]
    fn a_caller_gets_its_share_and_finished_calls_make_room() {
        let shares = shares(4);
        let (one, other) = (Arc::<InFlight>::default(), Arc::<InFlight>::default());
        let mut held: Vec<_> = (0..4).map(|_| shares.take(&one, 1, 0).expect("within the share")).collect();
        assert_eq!(shares.take(&one, 1, 0).map(drop), Err(Overloaded));
        assert!(shares.take(&other, 1, 0).is_ok(), "another caller has its own share");
        held.pop();
        assert!(shares.take(&one, 1, 0).is_ok());
        drop(held);
        assert_eq!(one.count(), 0, "a refused call is not counted");
        assert!(shares.take(&one, 64, 0).is_ok(), "a caller without calls can send one batch of any size");
    }

    #[test]
    fn shares_shrink_while_the_store_is_slow_and_never_below_the_minimum() {
        let shares = shares(256);
        for (latency_ms, share) in [(0, 256), (10, 256), (20, 128), (40, 64), (80, 32), (100_000, SHARE_MIN)]
        {
            assert_eq!(shares.share(latency_ms * 1_000), share, "{latency_ms} ms");
        }
    }
}
