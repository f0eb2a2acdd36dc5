//! The crate `gcra`.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use gcra::{RateLimit, RateLimiter};

use crate::contender::{BURST, Decide, Entrant, PERIOD_S};

pub(super) const KEYED: Entrant = Entrant::new(
    "gcra",
    "`RateLimiter<String>::check`, which takes a `String` for every decision; its future is polled once, without a \
     runtime",
    |keys| Box::new(Gcra::new(keys)),
);

struct Gcra {
    limiter: RateLimiter<String>,
    limit: RateLimit,
}

impl Gcra {
    fn new(keys: u64) -> Gcra {
        let limit = RateLimit::new(BURST, Duration::from_secs(PERIOD_S) * BURST);
        Gcra { limiter: RateLimiter::new(keys as usize), limit }
    }
}

impl Decide for Gcra {
    fn decide(&self, key: &String) -> bool {
        let check = pin!(self.limiter.check(key.clone(), &self.limit, 1));
        match check.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(checked) => checked.is_ok(),
            Poll::Pending => unreachable!("it waits for nothing"),
        }
    }
}
