//! Whether a server answers: the breaker.
//!
//! While a server is down, whoever asks is told so at once, and nobody's check is the probe: a connection is made anew, with
//! pauses, and once it answers within the deadline the server is up again.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::store::redis::error::RedisError;

/// What is known of a server.
#[derive(Default, Debug)]
pub(crate) struct Health {
    /// The same as whether there is a reason, without a lock: every check asks.
    is_down: AtomicBool,
    why: Mutex<Option<RedisError>>,
    opened: AtomicU64,
    closed: AtomicU64,
    turned: Notify,
}

/// How often a server went down and came back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Turns {
    pub(crate) opened: u64,
    pub(crate) closed: u64,
}

impl Health {
    /// Why nothing should be sent there, if it is down.
    pub(crate) fn why_down(&self) -> Option<RedisError> {
        if self.is_down.load(Ordering::Relaxed) { self.why.lock().clone() } else { None }
    }

    pub(crate) fn is_down(&self) -> bool {
        self.is_down.load(Ordering::Relaxed)
    }

    /// It does not answer, or not in time.
    pub(crate) fn fails(&self, why: RedisError) {
        let mut known = self.why.lock();
        if known.replace(why).is_none() {
            self.is_down.store(true, Ordering::Relaxed);
            self.opened.fetch_add(1, Ordering::Relaxed);
            self.turned.notify_waiters();
        }
    }

    /// It answers.
    pub(crate) fn answers(&self) {
        let mut known = self.why.lock();
        if known.take().is_some() {
            self.is_down.store(false, Ordering::Relaxed);
            self.closed.fetch_add(1, Ordering::Relaxed);
            self.turned.notify_waiters();
        }
    }

    pub(crate) fn turns(&self) -> Turns {
        Turns { opened: self.opened.load(Ordering::Relaxed), closed: self.closed.load(Ordering::Relaxed) }
    }

    /// Waits until it is otherwise than `down`.
    pub(crate) async fn turns_from(&self, down: bool) {
        let mut turned = std::pin::pin!(self.turned.notified());
        loop {
            turned.as_mut().enable();
            if self.is_down() != down {
                return;
            }
            turned.as_mut().await;
            turned.set(self.turned.notified());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_opens_and_closes_once_however_often_it_is_told() {
        let health = Health::default();
        assert!(health.why_down().is_none());
        for _ in 0..3 {
            health.fails(RedisError::NoReply);
        }
        assert!(matches!(health.why_down(), Some(RedisError::NoReply)));
        assert_eq!(health.turns(), Turns { opened: 1, closed: 0 });
        for _ in 0..3 {
            health.answers();
        }
        assert!(!health.is_down() && health.why_down().is_none());
        assert_eq!(health.turns(), Turns { opened: 1, closed: 1 });
    }
}
