//! The leases of requests that are running: renewed while they run, released at their end.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use tollgate::core::{Limit, Receipt, Span, Time};
use tollgate::{Decision, LocalLimiter};

/// Running requests by their next event.
#[derive(Default)]
pub(super) struct Leases {
    events: BinaryHeap<Reverse<(Time, usize)>>,
    running: Vec<Option<Running>>,
    free: Vec<usize>,
}

struct Running {
    ends: Time,
    /// How often its client renews the leases: three times in their life.
    renews_every: Span,
    receipts: Vec<Receipt>,
}

impl Leases {
    /// Holds the leases of an admitted request until it ends.
    pub(super) fn hold(&mut self, now: Time, duration_us: u64, decision: &Decision) {
        let mut shortest = Span::from_secs(3_600);
        let receipts: Vec<Receipt> = decision
            .receipts()
            .into_iter()
            .filter(|receipt| match receipt.limit {
                Limit::Concurrency(limit) => {
                    shortest = shortest.min(limit.lease());
                    true
                }
                _ => false,
            })
            .collect();
        if receipts.is_empty() {
            return;
        }
        let ends = now.plus(Span::from_us(duration_us));
        let renews_every = Span::from_us((shortest.us() / 3).max(1));
        let running = Running { ends, renews_every, receipts };
        let next = ends.min(now.plus(renews_every));
        let slot = self.free.pop().unwrap_or_else(|| {
            self.running.push(None);
            self.running.len() - 1
        });
        self.running[slot] = Some(running);
        self.events.push(Reverse((next, slot)));
    }

    /// Renews and releases what is due, each at its time.
    pub(super) fn release_until(&mut self, now: Time, limiter: &LocalLimiter, set_clock: impl Fn(Time)) {
        while let Some(&Reverse((at, slot))) = self.events.peek().filter(|event| event.0.0 <= now) {
            self.events.pop();
            set_clock(at);
            let Some(running) = &self.running[slot] else { continue };
            // The memory store does not fail; a lease that has expired meanwhile is gone already.
            let ended = if at < running.ends {
                let held = limiter.renew_receipts(&running.receipts).unwrap_or(false);
                let next = running.ends.min(at.plus(running.renews_every));
                if held {
                    self.events.push(Reverse((next, slot)));
                }
                !held
            } else {
                drop(limiter.release_receipts(&running.receipts));
                true
            };
            if ended {
                self.running[slot] = None;
                self.free.push(slot);
            }
        }
    }
}
