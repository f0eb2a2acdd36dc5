use serde_json::{Value, json};

use super::*;
use crate::store::down::DownStore;
use crate::{Limiter, LocalLimiter, Request};

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

fn document(problem: &Problem<'_>) -> Value {
    serde_json::from_str(&problem.to_json()).unwrap()
}

fn request<'a>(extra: (&'a str, &'a str)) -> Request<'a> {
    Request::from([("api_key", "k-secret"), extra])
}

#[test]
fn a_refusal_names_its_rules_and_the_wait() {
    let limiter = LocalLimiter::from_yaml(RULES).unwrap();
    let request = request(("tenant", "acme"));
    let admitted = limiter.check(request.clone().cost(2)).unwrap();
    assert_eq!(Problem::of_refusal(&admitted), None);

    let refused = limiter.check(&request).unwrap();
    let problem = Problem::of_refusal(&refused).unwrap();
    let wait_ms = problem.retry_after.unwrap().as_millis() as u64;
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
fn a_request_that_is_denied_is_forbidden_without_a_reason() {
    let limiter = LocalLimiter::from_yaml(RULES).unwrap();
    let forbidden = json!({ "type": "about:blank", "title": "Forbidden", "status": 403, "code": "denied" });
    let by_list = limiter.check(request(("tenant", "theirs"))).unwrap();
    assert_eq!(document(&Problem::of_refusal(&by_list).unwrap()), forbidden);

    let by_rule = limiter.check(request(("action", "retired"))).unwrap();
    let mut expected = forbidden;
    expected["rule"] = "nothing".into();
    expected["violated-policies"] = json!(["nothing"]);
    assert_eq!(document(&Problem::of_refusal(&by_rule).unwrap()), expected);
}

#[tokio::test]
async fn a_refusal_by_failure_policy_is_status_503() {
    let limiter = Limiter::builder().custom_store(DownStore).rules_yaml(RULES).build().await.unwrap();
    let refused = limiter.check(request(("tenant", "acme"))).await.unwrap();
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
fn a_cost_above_the_capacity_is_status_413_and_other_errors_are_500() {
    let limiter = LocalLimiter::from_yaml(RULES).unwrap();
    let request = request(("tenant", "acme"));
    let error = limiter.check(request.cost(3)).unwrap_err();
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
fn every_rule_id_parses_back_to_itself() {
    for rule in ["plain", r#"a "quoted" \ one"#, "tab\tnewline\nnul\0", "\u{e9}\u{1f980}\u{7f}"] {
        let error = CheckError::Plan(PlanError::Mixed { rule: rule.to_owned() });
        assert_eq!(document(&Problem::of_error(&error))["rule"], rule);
    }
}
