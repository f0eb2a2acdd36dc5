use super::*;
use tollgate_core::Attributes;

const RULES: &str = "
version: 1
rules:
  - { id: per-key, match: { action: search }, per: api_key, limit: { token-bucket: 2/s, burst: 3 } }
  - { id: at-once, match: { action: search }, per: tenant, missing: skip, limit: { concurrency: 1, lease: 30s } }
";

fn is_send<T: Send>(value: T) -> T {
    value
}

#[test]
fn checks_run_on_any_runtime() {
    let limiter = Limiter::from_yaml(RULES).unwrap();
    let attributes = Attributes::from([("action", "search"), ("api_key", "k")]);
    let decision = is_send(at_once(is_send(limiter.check(&attributes))).unwrap());
    assert!(decision.allowed);
    assert_eq!(decision.headline().unwrap().id(), "per-key");
    assert_eq!(decision.headline().unwrap().numbers.unwrap().remaining, 2);
}
