//! Tollgate: one limit by string key, and the limiter with rules.

use std::fmt::Write;
use std::time::Duration;

use tollgate::{Keyed, Limit, LocalLimiter};

use crate::contender::{BURST, Decide, Entrant, PERIOD_S};

pub(super) const KEYED: Entrant = Entrant::new("tollgate", "`Keyed::check`", |_| Box::new(OneLimit::new()));

pub(super) const ONE_RULE: Entrant = Entrant::new(
    "tollgate, 1 of 20 rules",
    "`LocalLimiter::check` of four attributes; one of 20 rules matches",
    |_| Box::new(Rules::new("search")),
);

pub(super) const THREE_RULES: Entrant = Entrant::new(
    "tollgate, 3 of 20 rules",
    "the same; three match: token bucket, sliding window, fixed window, charged all or nothing",
    |_| Box::new(Rules::new("export")),
);

/// Number of the twenty rules that match other requests.
pub(super) const OTHER_RULES: usize = 16;
/// The path of every request; some of those rules match on it.
pub(super) const PATH: &str = "/v1/items/17";

struct OneLimit(Keyed);

impl OneLimit {
    fn new() -> OneLimit {
        let limit = Limit::token_bucket(1, Duration::from_secs(PERIOD_S)).burst(u64::from(BURST));
        OneLimit(Keyed::new(limit).expect("the limit is in range"))
    }
}

impl Decide for OneLimit {
    fn decide(&self, key: &String) -> bool {
        self.0.check(key).allowed()
    }
}

struct Rules {
    limiter: LocalLimiter,
    action: &'static str,
}

impl Rules {
    fn new(action: &'static str) -> Rules {
        Rules { limiter: LocalLimiter::from_yaml(&rules()).expect("the rules are good"), action }
    }
}

impl Decide for Rules {
    fn decide(&self, key: &String) -> bool {
        let request = [("action", self.action), ("method", "GET"), ("path", PATH), ("api_key", key.as_str())];
        self.limiter.check(request).is_ok_and(|decision| decision.allowed())
    }
}

/// Twenty rules: sixteen about other actions and paths, one about searching, three about exporting.
fn rules() -> String {
    let mut rules = "version: 1\nrules:\n".to_owned();
    let bucket = format!("{{ token-bucket: 1/{PERIOD_S}s, burst: {BURST} }}");
    let mut rule = |id: &str, matches: &str, limit: &str| {
        writeln!(rules, "  - {{ id: {id}, match: {{ {matches} }}, per: api_key, limit: {limit} }}")
            .expect("a string takes everything");
    };
    for number in 0..OTHER_RULES {
        let matches = match number % 4 {
            0 => format!("path: \"/v1/c{number}/{{id}}\", method: GET"),
            _ => format!("action: other-{number}"),
        };
        rule(&format!("other-{number}"), &matches, &bucket);
    }
    rule("search", "action: search", &bucket);
    rule("export", "action: export", &bucket);
    rule("export-recently", "action: export", &format!("{{ sliding-window: {BURST}/h }}"));
    rule("export-by-the-hour", "action: export", &format!("{{ fixed-window: {BURST}/h }}"));
    rules
}
