use serde_json::{Value, json};
use tollgate_core::rules::Request;
use tollgate_core::{Attributes, Outcome, Plan, Store, StoreError, Time};

use super::*;
use crate::Limiter;

const RULES: &str = "
version: 1
rules:
  - { id: hourly, per: api_key, limit: { quota: 2/h, period: rolling } }
  - { id: bucket, per: api_key, limit: { token-bucket: 1/2s, burst: 2 } }
  - { id: nothing, match: { action: retired }, per: api_key, limit: deny }
  - { id: tried, per: api_key, mode: shadow, limit: { fixed-window: 2/min } }
deny:
  - { when: { tenant: theirs }, reason: a secret between us }
";

/// A store that never answers.
struct Down;

impl Store for Down {
    async fn apply(&self, _: &Plan<'_>) -> Result<Outcome, StoreError> {
        Err(StoreError::Transient("unreachable".into()))
    }

    fn apply_unawaited(&self, _: &Plan<'_>) {}

    fn now(&self) -> Time {
        Time::ZERO
    }
}

fn document(problem: &Problem<'_>) -> Value {
    serde_json::from_str(&problem.to_json()).unwrap()
}

fn attributes<'a>(extra: (&'a str, &'a str)) -> Attributes<'a> {
    Attributes::from([("api_key", "k-secret"), extra])
}

#[test]
fn a_refusal_names_its_rules_and_the_wait() {
    let limiter = Limiter::from_yaml(RULES).unwrap();
    let attributes = attributes(("tenant", "acme"));
    let admitted = limiter.check_now(Request::new(&attributes).cost(2)).unwrap();
    assert_eq!(Problem::of_refusal(&admitted), None);

    let refused = limiter.check_now(&attributes).unwrap();
    let problem = Problem::of_refusal(&refused).unwrap();
    let wait_ms = problem.retry_after_ms.unwrap();
    assert!((3_590_000..=3_600_000).contains(&wait_ms), "{wait_ms}");
    assert_eq!(
        document(&problem),
        json!({
            "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
            "title": "The limit is used up",
            "status": 429,
            "code": "quota-exceeded",
            "rule": "hourly",
            "retry_after_ms": wait_ms,
            "violated-policies": ["hourly", "bucket"],
        })
    );
}

#[test]
fn who_is_refused_for_good_is_forbidden_and_learns_no_reason() {
    let limiter = Limiter::from_yaml(RULES).unwrap();
    let forbidden = json!({ "type": "about:blank", "title": "Forbidden", "status": 403, "code": "denied" });
    let by_list = limiter.check_now(&attributes(("tenant", "theirs"))).unwrap();
    assert_eq!(document(&Problem::of_refusal(&by_list).unwrap()), forbidden);

    let by_rule = limiter.check_now(&attributes(("action", "retired"))).unwrap();
    let mut expected = forbidden;
    expected["rule"] = "nothing".into();
    expected["violated-policies"] = json!(["nothing"]);
    assert_eq!(document(&Problem::of_refusal(&by_rule).unwrap()), expected);
}

#[tokio::test]
async fn a_failure_policy_that_refuses_is_not_the_clients_fault() {
    let limiter = Limiter::builder().store(Down).rules_yaml(RULES).build().unwrap();
    let refused = limiter.check(&attributes(("tenant", "acme"))).await.unwrap();
    assert_eq!(
        document(&Problem::of_refusal(&refused).unwrap()),
        json!({
            "type": "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
            "title": "The service can do less than usual for now",
            "status": 503,
            "code": "temporary-reduced-capacity",
            "rule": "hourly",
            "violated-policies": ["hourly", "bucket"],
        })
    );
}

#[test]
fn a_cost_above_the_capacity_is_too_large_and_anything_else_our_fault() {
    let limiter = Limiter::from_yaml(RULES).unwrap();
    let attributes = attributes(("tenant", "acme"));
    let error = limiter.check_now(Request::new(&attributes).cost(3)).unwrap_err();
    assert_eq!(
        document(&Problem::of_error(&error)),
        json!({
            "type": "about:blank",
            "title": "Content Too Large",
            "status": 413,
            "code": "cost-above-capacity",
            "rule": "hourly",
        })
    );
    let error = CheckError::Plan(PlanError::DuplicateKey { rule: "twice".to_owned() });
    let problem = Problem::of_error(&error);
    assert_eq!((problem.status, problem.code, problem.rule), (500, "undecided", Some("twice")));
}

#[test]
fn any_text_is_written_as_json_reads_it() {
    for rule in ["plain", r#"a "quoted" \ one"#, "tab\tnewline\nnul\0", "\u{e9}\u{1f980}\u{7f}"] {
        let error = CheckError::Plan(PlanError::Mixed { rule: rule.to_owned() });
        assert_eq!(document(&Problem::of_error(&error))["rule"], rule);
    }
}
