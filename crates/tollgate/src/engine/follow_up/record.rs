//! Books consumption after the fact, and takes it back without a receipt.

use std::time::Duration;

use tollgate_core::rules::Request;
use tollgate_core::{Algorithm, Answer, Decline, Item, Operation, Store, Time, Verdict};

use super::once::{one_per_rule, one_per_subject};
use super::{FollowUpError, Returned};
use crate::engine::Engine;

/// What the rules booked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recorded {
    /// What each matched rule booked, in the order of the rules file.
    pub rules: Vec<RuleRecord>,
    /// Whether the cost was booked before under the same request id. Then `rules` says what was booked at that time.
    pub replayed: bool,
}

/// What one rule booked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RuleRecord {
    /// The rule's id.
    pub rule: String,
    /// The units that were booked, or why the rule booked nothing.
    pub amount: Result<u64, Decline>,
    /// Units that were not booked because the count has reached its cap.
    pub cut: u64,
    /// Units by which consumption now exceeds the limit.
    pub overdraft: u64,
    /// The limit in force, in units.
    pub limit: u64,
    /// Whole units that remain: 0 in overdraft.
    pub remaining: u64,
    /// How long it takes until one unit is admitted again if nothing else arrives.
    pub retry_after: Duration,
    /// How long a leaky-bucket queue asks the work to wait. Zero under all other limits.
    pub delay: Duration,
    /// Whether the rule can refuse requests. A shadow rule cannot.
    pub blocking: bool,
}

impl<S: Store> Engine<S> {
    /// Books the cost of work that was already done under every rule that matches the request. It never refuses:
    /// consumption may exceed the limit. See [`Limiter::record`](crate::Limiter::record).
    pub async fn record(&self, request: Request<'_>) -> Result<Recorded, FollowUpError> {
        let active = self.inner.rules.load_full();
        let id = self.once_id("record", request.id, active.text_hash);
        let answers = self.on_matched(&active, request, id, |cost| Operation::Record { cost }).await?;
        // A shard that has no part of a small cost wrote nothing, so its store remembers nothing.
        let mut wrote =
            answers.iter().filter(|answered| answered.item.shard.is_none() || asked(&answered.item) > 0);
        let replayed = !answers.is_empty() && wrote.all(|answered| answered.replayed);
        let rules = answers.iter().map(|answered| {
            (answered.place(), RuleRecord::new(&answered.item, &answered.answer, answered.now))
        });
        let rules = one_per_subject(rules, RuleRecord::add).into_iter();
        let rules = one_per_rule(rules, |one, other| one.remaining <= other.remaining);
        Ok(Recorded { rules, replayed })
    }

    /// Takes consumption back under every rule that matches the request, without a receipt, and never below zero. The
    /// amounts say by how much the counted consumption fell. See [`Limiter::credit`](crate::Limiter::credit).
    pub async fn credit(&self, request: Request<'_>) -> Result<Vec<Returned>, FollowUpError> {
        let active = self.inner.rules.load_full();
        let id = self.once_id("credit", request.id, active.text_hash);
        let answers = self.on_matched(&active, request, id, |cost| Operation::Credit { cost }).await?;
        let returned = answers.iter().map(|answered| {
            (answered.place(), Returned::new(&answered.item, &answered.answer, answered.replayed))
        });
        let returned = one_per_subject(returned, Returned::add).into_iter();
        Ok(one_per_rule(returned, |one, other| one.amount.unwrap_or(0) >= other.amount.unwrap_or(0)))
    }
}

/// The cost of a record.
const fn asked(item: &Item<'_>) -> u64 {
    match item.operation {
        Operation::Record { cost } => cost,
        _ => 0,
    }
}

impl RuleRecord {
    /// Adds what another shard of the same subject booked.
    fn add(&mut self, other: &RuleRecord) {
        self.amount = match (self.amount, other.amount) {
            (Ok(one), Ok(other)) => Ok(one.saturating_add(other)),
            (Err(_), Ok(booked)) | (Ok(booked), Err(_)) => Ok(booked),
            (Err(why), Err(_)) => Err(why),
        };
        self.cut = self.cut.saturating_add(other.cut);
        self.overdraft = self.overdraft.saturating_add(other.overdraft);
        self.limit = self.limit.saturating_add(other.limit);
        self.remaining = self.remaining.saturating_add(other.remaining);
        // A request asks one shard, so a unit is admitted for certain when every shard has one.
        self.retry_after = self.retry_after.max(other.retry_after);
        self.delay = self.delay.max(other.delay);
    }

    fn new(item: &Item<'_>, answer: &Answer, now: Time) -> RuleRecord {
        let asked = asked(item);
        let (amount, overdraft, free_at) = match answer.verdict {
            Verdict::Recorded { amount, overdraft, free_at } => (Ok(amount), overdraft, free_at),
            Verdict::Declined(why) => (Err(why), 0, now),
            _ => (Err(Decline::NotSupported), 0, now),
        };
        let wait = Duration::from(free_at - now);
        let is_shaper = item.limit.algorithm() == Algorithm::LeakyShaper;
        RuleRecord {
            rule: item.key.keyspace().rule().to_owned(),
            amount,
            cut: amount.map_or(0, |amount| asked.saturating_sub(amount)),
            overdraft,
            limit: answer.limit,
            remaining: answer.remaining,
            retry_after: if is_shaper { Duration::ZERO } else { wait },
            delay: if is_shaper { wait } else { Duration::ZERO },
            blocking: item.blocking,
        }
    }
}
