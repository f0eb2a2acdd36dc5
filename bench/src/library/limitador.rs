//! The crate `limitador` with its memory store. Its limits are fixed windows; it has no token bucket.

use std::collections::HashMap;

use limitador::RateLimiter;
use limitador::limit::{Expression, Limit, Namespace, Predicate};

use super::tollgate::{OTHER_RULES, PATH};
use crate::contender::{BURST, Decide, Entrant};

pub(super) const KEYED: Entrant = Entrant {
    keys_max: 1_000_000,
    every: 10,
    ..Entrant::new(
        "limitador",
        "`RateLimiter::check_rate_limited_and_update` with one limit without conditions, by one variable; counts fixed \
         windows",
        |keys| Box::new(Limitador::new(keys, vec![limit("", 1)], "")),
    )
};

/// Measured with one key only: filling it with a million takes minutes.
pub(super) const ONE_RULE: Entrant = Entrant {
    keys_max: 1,
    every: 10,
    ..Entrant::new(
        "limitador, 1 of 20 rules",
        "the same with 20 limits and four attributes; one limit applies",
        |keys| Box::new(Limitador::new(keys, limits(), "search")),
    )
};

pub(super) const THREE_RULES: Entrant = Entrant {
    keys_max: 1,
    every: 10,
    ..Entrant::new("limitador, 3 of 20 rules", "the same; three limits apply", |keys| {
        Box::new(Limitador::new(3 * keys, limits(), "export"))
    })
};

const NAMESPACE: &str = "bench";

struct Limitador {
    limiter: RateLimiter,
    namespace: Namespace,
    action: &'static str,
}

impl Limitador {
    fn new(keys: u64, limits: Vec<Limit>, action: &'static str) -> Limitador {
        // It evicts counters beyond its size, so it gets some room.
        let limiter = RateLimiter::new(2 * keys.max(1_000));
        for limit in limits {
            assert!(limiter.add_limit(limit), "no two limits are the same");
        }
        Limitador { limiter, namespace: NAMESPACE.into(), action }
    }
}

/// The rules of [`super::tollgate`], as far as limitador can express them.
fn limits() -> Vec<Limit> {
    let others = (0..OTHER_RULES).map(|number| limit(&format!("action == 'other-{number}'"), 1));
    let export = (1..=3).map(|hours| limit("action == 'export'", hours));
    others.chain([limit("action == 'search'", 1)]).chain(export).collect()
}

fn limit(condition: &str, hours: u64) -> Limit {
    let variable: Expression = "api_key".try_into().expect("a name is an expression");
    let condition = (!condition.is_empty()).then_some(condition.to_owned());
    let conditions = condition.map(|text| Predicate::parse(text).expect("the condition is one"));
    Limit::new(NAMESPACE, u64::from(BURST), hours * 3_600, conditions, [variable])
}

impl Decide for Limitador {
    fn decide(&self, key: &String) -> bool {
        let mut attributes = HashMap::from([("api_key".to_owned(), key.clone())]);
        if !self.action.is_empty() {
            for (name, value) in [("action", self.action), ("method", "GET"), ("path", PATH)] {
                attributes.insert(name.to_owned(), value.to_owned());
            }
        }
        let checked = self.limiter.check_rate_limited_and_update(&self.namespace, &attributes.into(), 1);
        checked.is_ok_and(|result| !result.limited)
    }
}
