//! The store calls of this process that are not answered yet.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Returns the store's time in microseconds since 1970.
pub type Clock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// Calls of recorded rules between their sending and their append to the journal.
///
/// What was sent before [`clean_at`](Calls::clean_at) is in the journal, or was never acknowledged.
#[derive(Default)]
pub(crate) struct Calls {
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    /// When each call was sent, by the store's clock.
    sent_us: BTreeMap<u64, i64>,
    next: u64,
    clock: Option<Clock>,
}

/// A call. It is open until this is dropped.
pub struct OpenCall<'c> {
    calls: &'c Calls,
    number: u64,
}

impl Calls {
    /// Sets the clock of the store.
    pub(crate) fn set_clock(&self, clock: Clock) {
        self.lock().clock = Some(clock);
    }

    /// Opens a call that is sent now.
    pub(crate) fn begin(&self, sent_us: i64) -> OpenCall<'_> {
        let mut open = self.lock();
        let number = open.next;
        open.next += 1;
        open.sent_us.insert(number, sent_us);
        OpenCall { calls: self, number }
    }

    /// Returns the earlier of now and the sending of the oldest open call. `now_us` is used if no store has set its clock.
    pub(crate) fn clean_at(&self, now_us: i64) -> i64 {
        let open = self.lock();
        let now_us = open.clock.as_ref().map_or(now_us, |clock| clock());
        open.sent_us.values().copied().fold(now_us, i64::min)
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for OpenCall<'_> {
    fn drop(&mut self) {
        self.calls.lock().sent_us.remove(&self.number);
    }
}

impl fmt::Debug for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Calls").field(&self.lock().sent_us.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_open_call_holds_the_clean_instant_back() {
        let calls = Calls::default();
        assert_eq!(calls.clean_at(50), 50);
        let (first, second) = (calls.begin(10), calls.begin(20));
        assert_eq!(calls.clean_at(50), 10);
        drop(first);
        assert_eq!(calls.clean_at(50), 20);
        drop(second);
        calls.set_clock(Arc::new(|| 70));
        assert_eq!(calls.clean_at(50), 70);
    }
}
