//! The crate `throttlecrab`.

use std::time::SystemTime;

use parking_lot::Mutex;
use throttlecrab::{PeriodicStore, RateLimiter};

use crate::contender::{BURST, Decide, Entrant, PERIOD_S};

pub(super) const KEYED: Entrant = Entrant::new(
    "throttlecrab",
    "`RateLimiter::rate_limit` on `PeriodicStore::new`; not thread-safe, so behind a `parking_lot::Mutex`; its adaptive \
     store scans the whole table for every decision once it is three quarters full",
    |_| Box::new(Throttlecrab(Mutex::new(RateLimiter::new(PeriodicStore::new())))),
);

struct Throttlecrab(Mutex<RateLimiter<PeriodicStore>>);

impl Decide for Throttlecrab {
    fn decide(&self, key: &String) -> bool {
        let mut limiter = self.0.lock();
        let answer = limiter.rate_limit(key, i64::from(BURST), 1, PERIOD_S as i64, 1, SystemTime::now());
        answer.is_ok_and(|(admitted, _)| admitted)
    }
}
