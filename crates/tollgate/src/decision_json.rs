//! A decision for programs: the one JSON in which commands and servers tell it.

use serde_json::Value;
use tollgate_core::decision::{RetryAfter, RuleOutcome, Source};

use crate::json::{known, list, name, number, text, truth};
use crate::limiter::{Decision, RuleView};

impl Decision {
    /// The decision as JSON. Fields of the headline rule stand at the top, every rule's own below `rules`.
    ///
    /// A number that nobody knows is `null`: `retry_after_ms` also if waiting does not help. Who was counted is not in
    /// it, and neither are [receipts](Decision::receipts): whoever has them can give charges back, so they go only to who
    /// asked.
    ///
    /// ```
    /// use tollgate::{Attributes, Limiter};
    ///
    /// let limiter = Limiter::from_yaml("
    ///     version: 1
    ///     rules: [{ id: five, per: user, limit: { sliding-log: 5/min } }]
    /// ")?;
    /// let told = limiter.check_now(&Attributes::from([("user", "u")]))?.to_json();
    /// assert_eq!((&told["allowed"], &told["rule"], &told["remaining"]), (&true.into(), &"five".into(), &4.into()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn to_json(&self) -> Value {
        let mut json = String::from("{");
        self.write_json_members(&mut json);
        json.push('}');
        serde_json::from_str(&json).expect("a decision is written as JSON")
    }

    /// The members of [`to_json`](Decision::to_json) without the braces, appended to a text: for who has more to say
    /// beside them, and says it often.
    pub fn write_json_members(&self, json: &mut String) {
        let headline = self.headline();
        let outcome = headline.as_ref().map(|rule| rule.outcome());
        name(json, "allowed");
        truth(json, self.allowed);
        // Nobody waits for what is allowed, whatever else is known.
        numbers(json, headline.as_ref().map(|rule| rule.id()), outcome, self.allowed.then_some(0));
        name(json, "source");
        text(json, source(self.source));
        name(json, "exactness");
        text(json, self.exactness.name());
        name(json, "degraded");
        truth(json, self.degraded);
        name(json, "delay_ms");
        number(json, self.delay_ms);
        name(json, "rules");
        list(json, self.rules(), |json, rule| each(json, &rule));
        name(json, "shadow_rejected");
        list(json, self.shadow_rejected(), |json, rule| text(json, rule.id()));
    }
}

fn each(json: &mut String, rule: &RuleView<'_>) {
    json.push('{');
    numbers(json, Some(rule.id()), Some(rule.outcome()), None);
    name(json, "allowed");
    truth(json, rule.allowed);
    name(json, "blocking");
    truth(json, rule.blocking);
    name(json, "delay_ms");
    number(json, rule.numbers.map_or(0, |numbers| numbers.delay_ms));
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

fn source(source: Source) -> &'static str {
    match source {
        Source::Store => "store",
        Source::Fallback => "fallback",
        Source::Unmatched => "unmatched",
        Source::List => "list",
        Source::Rule => "rule",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{Attributes, Limiter, ManualClock, MemoryStore, Request};
    use tollgate_core::Time;

    const RULES: &str = "
version: 1
rules:
  - { id: bucket, match: { action: search }, per: user, limit: { token-bucket: 2/s, burst: 5 } }
  - { id: trial, match: { action: search }, per: user, mode: shadow, limit: { fixed-window: 3/s } }
  - { id: closed, match: { action: closed }, per: user, limit: deny }
";

    #[test]
    fn every_field_of_a_decision_is_told() {
        let clock = ManualClock::at(Time::from_us(1_700_000_000_000_000));
        let limiter =
            Limiter::builder().rules_yaml(RULES).store(MemoryStore::with_clock(&clock)).build().unwrap();
        let attributes = Attributes::from([("action", "search"), ("user", "u")]);
        let request = Request::new(&attributes).cost(3);
        let bucket = json!({ "rule": "bucket", "algorithm": "token-bucket", "limit": 5, "remaining": 2,
            "retry_after_ms": 0, "reset_at_ms": 1_700_000_001_500_u64, "cost": 3,
            "allowed": true, "blocking": true, "delay_ms": 0 });
        let trial = json!({ "rule": "trial", "algorithm": "fixed-window", "limit": 3, "remaining": 0,
            "retry_after_ms": 0, "reset_at_ms": 1_700_000_001_000_u64, "cost": 3,
            "allowed": true, "blocking": false, "delay_ms": 0 });
        assert_eq!(
            limiter.check_now(request).unwrap().to_json(),
            json!({ "rule": "bucket", "algorithm": "token-bucket", "limit": 5, "remaining": 2,
                "retry_after_ms": 0, "reset_at_ms": 1_700_000_001_500_u64, "cost": 3,
                "allowed": true, "source": "store", "exactness": "exact", "degraded": false, "delay_ms": 0,
                "rules": [bucket, trial], "shadow_rejected": [] })
        );
        let refused = limiter.check_now(request).unwrap().to_json();
        assert_eq!(
            (&refused["allowed"], &refused["retry_after_ms"], &refused["shadow_rejected"]),
            (&json!(false), &json!(500), &json!(["trial"]))
        );
    }

    #[test]
    fn what_nobody_knows_is_null() {
        let limiter = Limiter::from_yaml(RULES).unwrap();
        let closed = limiter.check_now(&Attributes::from([("action", "closed"), ("user", "u")])).unwrap();
        let told = closed.to_json();
        assert_eq!((&told["rule"], &told["source"]), (&json!("closed"), &json!("rule")));
        for unknown in ["algorithm", "limit", "remaining", "retry_after_ms", "reset_at_ms"] {
            assert_eq!(told.get(unknown), Some(&Value::Null), "{unknown}");
        }
        let unmatched = limiter.check_now(&Attributes::new()).unwrap().to_json();
        assert_eq!((&unmatched["rule"], &unmatched["retry_after_ms"]), (&Value::Null, &json!(0)));
        assert_eq!(unmatched["source"], "unmatched");
    }
}
