//! The measured decisions: one key, every one admitted.

use std::fmt::Write;
use std::time::Duration;

use tollgate::{Keyed, Limit, LocalLimiter};

const KEY: &str = "user-0001234567";

/// One charge of one token bucket, by string key.
pub(crate) fn bare_step() -> Box<dyn Fn() -> bool> {
    let limit = Limit::token_bucket(1, Duration::from_secs(1)).burst(1_000_000);
    let keyed = Keyed::new(limit).expect("the limit is in range");
    Box::new(move || keyed.check(KEY).allowed())
}

/// One check of this action: one of twenty rules matches `search`, three match `export`.
pub(crate) fn check(action: &'static str) -> Box<dyn Fn() -> bool> {
    let limiter = LocalLimiter::from_yaml(&rules()).expect("the rules are good");
    Box::new(move || {
        let path = "/v1/items/17";
        let request = [("action", action), ("method", "GET"), ("path", path), ("api_key", KEY)];
        limiter.check(request).is_ok_and(|decision| decision.allowed())
    })
}

fn rules() -> String {
    const BUCKET: &str = "token-bucket: 1/s, burst: 1000000";
    let mut rules = "version: 1\nrules:\n".to_owned();
    let mut rule = |id: &str, matches: &str, limit: &str| {
        writeln!(rules, "  - {{ id: {id}, match: {{ {matches} }}, per: api_key, limit: {{ {limit} }} }}")
            .expect("a string takes everything");
    };
    for number in 0..16 {
        let matches = match number % 4 {
            0 => format!("path: \"/v1/c{number}/{{id}}\", method: GET"),
            _ => format!("action: other-{number}"),
        };
        rule(&format!("other-{number}"), &matches, BUCKET);
    }
    rule("search", "action: search", BUCKET);
    rule("export", "action: export", BUCKET);
    rule("export-recently", "action: export", "sliding-window: 1000000/h");
    rule("export-by-the-hour", "action: export", "fixed-window: 1000000/h");
    rules
}
