//! The breaker: fails Plans at once while their server is down.
//!
//! No check is ever the probe. The client reconnects with pauses, and the breaker closes when a new connection answers
//! within the deadline.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::store::redis::error::RedisError;

/// Whether one server is up. Open means down.
#[derive(Default, Debug)]
pub(crate) struct Breaker {
    /// Whether `reason` is set, readable without its lock: every check reads it.
    is_open: AtomicBool,
    reason: Mutex<Option<RedisError>>,
    opened: AtomicU64,
    closed: AtomicU64,
    changed: Notify,
}

/// How many times a breaker opened and closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BreakerCounts {
    pub(crate) opened: u64,
    pub(crate) closed: u64,
}

impl Breaker {
    /// The error for Plans that are not sent; None if the server is up.
    pub(crate) fn reason(&self) -> Option<RedisError> {
        if self.is_open.load(Ordering::Relaxed) { self.reason.lock().clone() } else { None }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    /// Records that the server does not answer, or not in time.
    pub(crate) fn open(&self, error: RedisError) {
        let mut reason = self.reason.lock();
        if reason.replace(error).is_none() {
            self.is_open.store(true, Ordering::Relaxed);
            self.opened.fetch_add(1, Ordering::Relaxed);
            self.changed.notify_waiters();
        }
    }

    /// Records that the server answers.
    pub(crate) fn close(&self) {
        let mut reason = self.reason.lock();
        if reason.take().is_some() {
            self.is_open.store(false, Ordering::Relaxed);
            self.closed.fetch_add(1, Ordering::Relaxed);
            self.changed.notify_waiters();
        }
    }

    pub(crate) fn counts(&self) -> BreakerCounts {
        BreakerCounts {
            opened: self.opened.load(Ordering::Relaxed),
            closed: self.closed.load(Ordering::Relaxed),
        }
    }

    /// Waits until `is_open` is no longer `was_open`.
    pub(crate) async fn changed_from(&self, was_open: bool) {
        let mut changed = std::pin::pin!(self.changed.notified());
        loop {
            changed.as_mut().enable();
            if self.is_open() != was_open {
                return;
            }
            changed.as_mut().await;
            changed.set(self.changed.notified());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_failures_open_once_and_repeated_answers_close_once() {
        let breaker = Breaker::default();
        assert!(breaker.reason().is_none());
        for _ in 0..3 {
            breaker.open(RedisError::NoReply);
        }
        assert!(matches!(breaker.reason(), Some(RedisError::NoReply)));
        assert_eq!(breaker.counts(), BreakerCounts { opened: 1, closed: 0 });
        for _ in 0..3 {
            breaker.close();
        }
        assert!(!breaker.is_open() && breaker.reason().is_none());
        assert_eq!(breaker.counts(), BreakerCounts { opened: 1, closed: 1 });
    }
}
