//! A refusal as JSON.

use serde_json::{Value, json};

use super::{Refusal, RefusingRule};

impl Refusal {
    /// The members of the headline rule are at the top, as in a decision.
    pub(crate) fn to_json(&self) -> Value {
        let rules = self.refused_by.iter().map(RefusingRule::to_json);
        let mut json = self.refused_by.first().map_or_else(|| json!({ "rule": null }), RefusingRule::to_json);
        let members = json!({
            "at_ms": self.at_us / 1_000,
            "server": self.server,
            "rules_fingerprint": self.rules_fingerprint,
            "source": self.source.name(),
            "exactness": self.exactness.name(),
            "subject": self.subject,
            "refused_by": rules.collect::<Value>(),
            "more": self.more,
        });
        if let (Value::Object(json), Value::Object(members)) = (&mut json, members) {
            json.extend(members);
        }
        json
    }
}

impl RefusingRule {
    fn to_json(&self) -> Value {
        let numbers = self.numbers;
        json!({
            "rule": self.rule,
            "algorithm": self.algorithm.map(|algorithm| algorithm.name()),
            "cost": self.cost,
            "override": self.is_override,
            "limit": numbers.map(|numbers| numbers.limit),
            "remaining": numbers.map(|numbers| numbers.remaining),
            "retry_after_ms": numbers.and_then(|numbers| numbers.retry_after_ms),
            "reset_at_ms": numbers.map(|numbers| numbers.reset_at_ms).filter(|&at_ms| at_ms > 0),
        })
    }
}
