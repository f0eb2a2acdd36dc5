//! The decision as JSON, the same for commands and servers.

use tollgate_core::decision::{RetryAfter, RuleOutcome};

use crate::limiter::{Decision, RuleDecision};
use crate::wire::json::{boolean, known, list, name, number, text};

impl Decision {
    /// The decision as a JSON object. The fields of the headline rule are at the top level, those of every rule are in
    /// `rules`.
    ///
    /// An unknown number is `null`, and so is `retry_after_ms` if waiting does not help. The object has no subject and no
    /// [receipt](Decision::receipts).
    ///
    /// ```
    /// use tollgate::LocalLimiter;
    ///
    /// let limiter = LocalLimiter::from_yaml("
    ///     version: 1
    ///     rules: [{ id: five, per: user, limit: { sliding-log: 5/min } }]
    /// ")?;
    /// let json = limiter.check([("user", "u")])?.to_json();
    /// assert!(json.starts_with(r#"{"allowed":true,"rule":"five","algorithm":"sliding-log","limit":5,"remaining":4,"#));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn to_json(&self) -> String {
        let mut json = String::with_capacity(512);
        json.push('{');
        self.write_json_members(&mut json);
        json.push('}');
        json
    }

    /// Appends the members of [`to_json`](Decision::to_json) without the braces, for callers that add members.
    pub fn write_json_members(&self, json: &mut String) {
        let headline = self.headline();
        let outcome = headline.as_ref().map(|rule| rule.outcome());
        name(json, "allowed");
        boolean(json, self.allowed());
        // An allowed request need not wait, also if its numbers are unknown.
        numbers(json, headline.as_ref().map(|rule| rule.id()), outcome, self.allowed().then_some(0));
        name(json, "source");
        text(json, self.source().name());
        name(json, "exactness");
        text(json, self.exactness().name());
        name(json, "degraded");
        boolean(json, self.degraded());
        name(json, "delay_ms");
        number(json, self.plan_decision().delay_ms);
        name(json, "rules");
        list(json, self.rules(), |json, rule| each(json, &rule));
        name(json, "shadow_rejected");
        list(json, self.shadow_rejected(), |json, rule| text(json, rule.id()));
    }
}

fn each(json: &mut String, rule: &RuleDecision<'_>) {
    json.push('{');
    numbers(json, Some(rule.id()), Some(rule.outcome()), None);
    name(json, "allowed");
    boolean(json, rule.allowed());
    name(json, "blocking");
    boolean(json, rule.blocking());
    name(json, "delay_ms");
    number(json, rule.outcome().numbers.map_or(0, |numbers| numbers.delay_ms));
    json.push('}');
}

fn numbers(json: &mut String, id: Option<&str>, outcome: Option<&RuleOutcome>, wait_ms: Option<u64>) {
    let numbers = outcome.and_then(|outcome| outcome.numbers);
    let retry_after_ms = wait_ms.or_else(|| match numbers?.retry_after {
        RetryAfter::Ms(ms) => Some(ms),
        RetryAfter::Never => None,
    });
    name(json, "rule");
    known(json, id, text);
    name(json, "algorithm");
    known(json, outcome.and_then(|outcome| outcome.algorithm), |json, algorithm| {
        text(json, algorithm.name());
    });
    for (key, value) in [
        ("limit", numbers.map(|numbers| numbers.limit)),
        ("remaining", numbers.map(|numbers| numbers.remaining)),
        ("retry_after_ms", retry_after_ms),
        ("reset_at_ms", numbers.map(|numbers| numbers.reset_at_ms)),
        ("cost", outcome.map(|outcome| outcome.cost)),
    ] {
        name(json, key);
        known(json, value, number);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::{Decision, LocalLimiter, ManualClock, Request};

    const RULES: &str = "
version: 1
rules:
  - { id: bucket, match: { action: search }, per: user, limit: { token-bucket: 2/s, burst: 5 } }
  - { id: trial, match: { action: search }, per: user, mode: shadow, limit: { fixed-window: 3/s } }
  - { id: closed, match: { action: closed }, per: user, limit: deny }
";

    fn parsed(decision: &Decision) -> Value {
        serde_json::from_str(&decision.to_json()).unwrap()
    }

    #[test]
    fn every_field_of_a_decision_is_written() {
        let limiter =
            LocalLimiter::builder().rules_yaml(RULES).clock(ManualClock::default()).build().unwrap();
        let request = Request::from([("action", "search"), ("user", "u")]).cost(3);
        let bucket = json!({ "rule": "bucket", "algorithm": "token-bucket", "limit": 5, "remaining": 2,
            "retry_after_ms": 0, "reset_at_ms": 1_700_000_001_500_u64, "cost": 3,
            "allowed": true, "blocking": true, "delay_ms": 0 });
        let trial = json!({ "rule": "trial", "algorithm": "fixed-window", "limit": 3, "remaining": 0,
            "retry_after_ms": 0, "reset_at_ms": 1_700_000_001_000_u64, "cost": 3,
            "allowed": true, "blocking": false, "delay_ms": 0 });
        assert_eq!(
            parsed(&limiter.check(&request).unwrap()),
            json!({ "rule": "bucket", "algorithm": "token-bucket", "limit": 5, "remaining": 2,
                "retry_after_ms": 0, "reset_at_ms": 1_700_000_001_500_u64, "cost": 3,
                "allowed": true, "source": "store", "exactness": "exact", "degraded": false, "delay_ms": 0,
                "rules": [bucket, trial], "shadow_rejected": [] })
        );
        let refused = parsed(&limiter.check(&request).unwrap());
        assert_eq!(
            (&refused["allowed"], &refused["retry_after_ms"], &refused["shadow_rejected"]),
            (&json!(false), &json!(500), &json!(["trial"]))
        );
    }

    #[test]
    fn an_unknown_number_is_null() {
        let limiter = LocalLimiter::from_yaml(RULES).unwrap();
        let closed = parsed(&limiter.check([("action", "closed"), ("user", "u")]).unwrap());
        assert_eq!((&closed["rule"], &closed["source"]), (&json!("closed"), &json!("rule")));
        for unknown in ["algorithm", "limit", "remaining", "retry_after_ms", "reset_at_ms"] {
            assert_eq!(closed.get(unknown), Some(&Value::Null), "{unknown}");
        }
        let unmatched = parsed(&limiter.check(Request::new()).unwrap());
        assert_eq!((&unmatched["rule"], &unmatched["retry_after_ms"]), (&Value::Null, &json!(0)));
        assert_eq!(unmatched["source"], "unmatched");
    }
}
