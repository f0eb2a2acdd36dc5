//! How many Plans can be in flight so that replies come well before the deadline.
//!
//! Replies that take longer than half of the deadline halve the window. It grows by an eighth per round trip while replies
//! take less than a quarter of the deadline and the window is in use. A window that is not in use shrinks again, so that a
//! sudden load on a store that has become slow meanwhile starts small.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The window is never smaller. Otherwise a store whose every reply is late would be used by one Plan at a time.
const PLANS_MIN: usize = 4;
/// The window of a store that is not in use.
const PLANS_IDLE: usize = 16;
/// The part of the window that it grows by.
const GROWTH: usize = 8;

/// A number of Plans that follows the latency of replies.
#[derive(Debug)]
pub(crate) struct Window {
    plans: AtomicUsize,
    max: usize,
    /// Replies that take longer are late.
    late_after: Duration,
    /// When the number was changed. Plans that were queued earlier say nothing about the new number.
    changed: Mutex<Instant>,
}

impl Window {
    pub(crate) fn new(deadline: Duration, max: usize) -> Window {
        Window {
            plans: AtomicUsize::new(PLANS_IDLE.min(max)),
            max,
            late_after: deadline / 2,
            changed: Mutex::new(Instant::now()),
        }
    }

    /// The number of Plans.
    pub(crate) fn plans(&self) -> usize {
        self.plans.load(Ordering::Relaxed)
    }

    /// Adjusts the window to the reply to a Plan that was queued at this instant, while this many Plans were in flight.
    pub(crate) fn record(&self, queued: Instant, now: Instant, in_flight: usize) {
        let mut changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
        if queued < *changed {
            return;
        }
        let plans = self.plans();
        let next = self.next(plans, now.saturating_duration_since(queued), in_flight);
        if next != plans {
            self.plans.store(next, Ordering::Relaxed);
            *changed = now;
        }
    }

    fn next(&self, plans: usize, latency: Duration, in_flight: usize) -> usize {
        let min = PLANS_MIN.min(self.max);
        if latency > self.late_after {
            return (plans.min(in_flight) / 2).max(min);
        }
        if in_flight > plans / 2 && latency < self.late_after / 2 {
            return (plans + (plans / GROWTH).max(1)).min(self.max);
        }
        if in_flight < plans / 4 && plans > PLANS_IDLE {
            return (plans / 2).max(PLANS_IDLE);
        }
        plans
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// A store that answers a number of Plans per second, which are always waiting. Returns the latency after some time.
    fn settled_latency(window: &Window, plans_per_sec: u32, seconds: u32) -> Duration {
        let mut now = Instant::now();
        let end = now + Duration::from_secs(seconds.into());
        let mut latency = Duration::ZERO;
        while now < end {
            let in_flight = window.plans();
            latency = Duration::from_secs(1) * in_flight as u32 / plans_per_sec;
            let queued = now;
            now += latency;
            window.record(queued, now, in_flight);
        }
        latency
    }

    #[test]
    fn latency_stays_below_half_of_the_deadline_whatever_the_store_does_per_second() {
        for (deadline_ms, per_sec) in [(500, 600), (500, 60), (25, 1_000), (25, 10_000), (25, 1_000_000)] {
            let window = Window::new(deadline_ms * MS, 4_096);
            let latency = settled_latency(&window, per_sec, 10);
            assert!(latency <= deadline_ms * MS / 2, "{deadline_ms} ms, {per_sec}/s: {latency:?}");
            let wasted = deadline_ms * MS / 8;
            let is_used = latency >= wasted || window.plans() == 4_096;
            assert!(is_used, "{deadline_ms} ms, {per_sec}/s: {latency:?}");
        }
    }

    #[test]
    fn a_window_that_is_not_used_shrinks_and_one_that_is_late_keeps_the_minimum() {
        let window = Window::new(500 * MS, 4_096);
        settled_latency(&window, 1_000_000, 2);
        assert_eq!(window.plans(), 4_096);
        let mut now = Instant::now() + Duration::from_secs(3_600);
        for _ in 0..10 {
            now += MS;
            window.record(now, now, 1);
        }
        assert_eq!(window.plans(), PLANS_IDLE);
        for _ in 0..10 {
            now += MS;
            window.record(now, now + 400 * MS, 8);
            now += 400 * MS;
        }
        assert_eq!(window.plans(), PLANS_MIN);
    }

    #[test]
    fn one_round_trip_changes_the_window_once() {
        let window = Window::new(500 * MS, 4_096);
        let queued = Instant::now();
        for _ in 0..8 {
            window.record(queued, queued + 300 * MS, PLANS_IDLE);
        }
        assert_eq!(window.plans(), PLANS_IDLE / 2);
    }
}
