//! What the subjects of a request have used under every rule that counts them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tollgate_core::rules::{Request, Rule};
use tollgate_core::{Answer, Item, Operation, Plan, Store, Time, Verdict};

use super::FollowUpError;
use super::once::{OnceId, one_per_rule, one_per_subject};
use crate::engine::Engine;
use crate::engine::active_rules::ActiveRules;

/// What one subject has used under one rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RuleUsage {
    /// The rule's id.
    pub rule: String,
    /// The limit in force, in units.
    pub limit: u64,
    /// Units that were consumed.
    pub used: u64,
    /// Units that open reservations (quota) or leases (concurrency) hold. 0 under all other limits.
    pub held: u64,
    /// Whole units that remain.
    pub remaining: u64,
    /// Units by which consumption and holds exceed the limit.
    pub overdraft: u64,
    /// When the whole limit is available again if nothing else is charged.
    pub reset_at: SystemTime,
    /// The window, the period, or the time that a bucket takes to drain. `None` if no length of time brings units back.
    pub period: Option<Duration>,
}

impl<S: Store> Engine<S> {
    /// Returns what the request's subjects have used under every rule that matches the request. Writes nothing. The cost
    /// of the request does not matter.
    pub async fn usage(&self, request: Request<'_>) -> Result<Vec<RuleUsage>, FollowUpError> {
        let active = self.inner.rules.load_full();
        self.usage_of(&active, request, |_| true).await
    }

    /// Like [`usage`](Engine::usage), under the rules that `is_meant` accepts.
    pub(in crate::engine) async fn usage_of(
        &self,
        active: &ActiveRules,
        request: Request<'_>,
        is_meant: fn(&Rule) -> bool,
    ) -> Result<Vec<RuleUsage>, FollowUpError> {
        let plan = |now: Time| {
            let mut plan = Plan::new();
            let operation = |_| Operation::Usage;
            active.rules.plan_follow_up(&request, &self.inner.hashers, now, operation, &mut plan)?;
            self.inner.store.place_subjects(&mut plan);
            let meant = |item: &&Item<'_>| is_meant(&active.rules.rules()[item.rule_index as usize]);
            Ok(plan.items().iter().filter(meant).copied().collect())
        };
        let answers = self.apply_once(OnceId::NONE, plan).await?;
        let usage = answers
            .iter()
            .map(|answered| (answered.place(), RuleUsage::new(&answered.item, &answered.answer)));
        let usage = one_per_subject(usage, RuleUsage::add).into_iter();
        // While a hash key is replaced, a rule counts under both keys. The higher count decides.
        Ok(one_per_rule(usage, |one, other| one.remaining < other.remaining))
    }
}

impl RuleUsage {
    /// Adds the usage of another shard of the same subject.
    fn add(&mut self, other: &RuleUsage) {
        self.limit = self.limit.saturating_add(other.limit);
        self.used = self.used.saturating_add(other.used);
        self.held = self.held.saturating_add(other.held);
        self.remaining = self.remaining.saturating_add(other.remaining);
        self.overdraft = self.overdraft.saturating_add(other.overdraft);
        self.reset_at = self.reset_at.max(other.reset_at);
        self.period = self.period.max(other.period);
    }

    fn new(item: &Item<'_>, answer: &Answer) -> RuleUsage {
        let (used, held) = match answer.verdict {
            Verdict::Usage { used, held } => (used, held),
            // A penalty counts failures, not units.
            _ => (answer.limit.saturating_sub(answer.remaining), 0),
        };
        let overdraft = used.saturating_add(held).saturating_sub(answer.limit);
        // A calendar period ends at the reset, so the instant before it belongs to the period.
        let before_reset = Time::from_us(answer.reset_at.us().saturating_sub(1));
        RuleUsage {
            rule: item.key.keyspace().rule().to_owned(),
            limit: answer.limit,
            used,
            held,
            remaining: answer.remaining,
            overdraft,
            reset_at: UNIX_EPOCH + Duration::from_micros(answer.reset_at.us()),
            period: item.limit.window(before_reset).map(Duration::from),
        }
    }
}
