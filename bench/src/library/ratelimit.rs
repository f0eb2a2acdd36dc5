//! The crate `ratelimit`.

use std::time::Duration;

use ratelimit::Ratelimiter;

use crate::contender::{BURST, Decide, Entrant, PERIOD_S};

pub(super) const DIRECT: Entrant =
    Entrant::new("ratelimit", "`Ratelimiter::try_wait`: one state, no key", |_| Box::new(Direct::new()));

struct Direct(Ratelimiter);

impl Direct {
    fn new() -> Direct {
        let burst = u64::from(BURST);
        let limiter = Ratelimiter::builder(1).period(Duration::from_secs(PERIOD_S)).max_tokens(burst);
        Direct(limiter.initial_available(burst).build().expect("the limit is in its range"))
    }
}

impl Decide for Direct {
    fn decide(&self, _: &String) -> bool {
        self.0.try_wait().is_ok()
    }
}
