//! The crate `governor`.

use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::{Clock, DefaultClock};
use governor::middleware::NoOpMiddleware;
use governor::state::keyed::{DashMapStateStore, HashMapStateStore, KeyedStateStore};
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};

use crate::contender::{BURST, Decide, Entrant, PERIOD_S};

pub(super) const DASHMAP: Entrant =
    Entrant::new("governor DashMap", "`RateLimiter::<String, _>::dashmap` and `check_key`", |_| {
        Box::new(Keyed(
            RateLimiter::<String, DashMapStateStore<String>, DefaultClock, NoMiddleware>::dashmap(quota()),
        ))
    });

pub(super) const HASHMAP: Entrant = Entrant::new(
    "governor HashMap",
    "`RateLimiter::<String, _>::hashmap` and `check_key`: one lock for all keys",
    |_| {
        Box::new(Keyed(
            RateLimiter::<String, HashMapStateStore<String>, DefaultClock, NoMiddleware>::hashmap(quota()),
        ))
    },
);

pub(super) const DIRECT: Entrant =
    Entrant::new("governor direct", "`RateLimiter::direct` and `check`: one state, no key", |_| {
        Box::new(Direct(RateLimiter::direct(quota())))
    });

type NoMiddleware = NoOpMiddleware<<DefaultClock as Clock>::Instant>;

fn quota() -> Quota {
    let burst = NonZeroU32::new(BURST).expect("the burst is not zero");
    Quota::with_period(Duration::from_secs(PERIOD_S)).expect("the period is not zero").allow_burst(burst)
}

struct Keyed<S: KeyedStateStore<String>>(RateLimiter<String, S, DefaultClock, NoMiddleware>);

impl<S: KeyedStateStore<String> + Send + Sync> Decide for Keyed<S> {
    fn decide(&self, key: &String) -> bool {
        self.0.check_key(key).is_ok()
    }
}

struct Direct(DefaultDirectRateLimiter);

impl Decide for Direct {
    fn decide(&self, _: &String) -> bool {
        self.0.check().is_ok()
    }
}
