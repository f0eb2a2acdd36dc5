use super::*;
use crate::LocalLimiter;
use tollgate_core::Attributes;

const RULES: &str = "
version: 1
rules:
  - { id: per-key, match: { action: search }, per: api_key, limit: { token-bucket: 2/s, burst: 3 } }
  - { id: in-flight, match: { action: search }, per: tenant, missing: skip, limit: { concurrency: 1, lease: 30s } }
";

fn is_send<T: Send>(value: T) -> T {
    value
}

#[test]
fn the_future_of_a_check_and_its_decision_can_be_sent_between_threads() {
    let limiter = LocalLimiter::from_yaml(RULES).unwrap();
    let attributes = Attributes::from([("action", "search"), ("api_key", "k")]);
    let check = limiter.engine().check(Request::new(&attributes));
    let decision = is_send(poll_ready(is_send(check)).unwrap());
    assert!(decision.allowed());
    assert_eq!((decision.rule(), decision.remaining()), (Some("per-key"), Some(2)));
}
