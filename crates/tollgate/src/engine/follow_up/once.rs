//! Applies follow-ups on the rules that match a request, once per request id.

use tollgate_core::limit::part::Shard;
use tollgate_core::rules::Request;
use tollgate_core::{
    Answer, Decline, Item, Operation, Outcome, Plan, PlanError, Span, Store, StoreError, Subject, Time,
    Verdict,
};

use super::{FollowUpError, join_all};
use crate::engine::active_rules::ActiveRules;
use crate::engine::{CheckError, Engine};

/// One rule's answer to a follow-up.
pub(crate) struct Answered<'r> {
    pub(crate) item: Item<'r>,
    pub(crate) answer: Answer,
    /// The store's time of the answer.
    pub(crate) now: Time,
    /// Whether the store repeats an earlier answer under the same id.
    pub(crate) replayed: bool,
}

/// The id under which each hash slot applies a follow-up once.
#[derive(Clone, Copy)]
pub(crate) struct OnceId {
    /// `None` if the store cannot lose an answer and the caller has no id.
    id: Option<Subject>,
    /// The id for what must be planned again.
    again: Option<Subject>,
    horizon: Span,
    rules_version: u64,
}

impl OnceId {
    /// For operations that write nothing.
    pub(crate) const NONE: OnceId = OnceId { id: None, again: None, horizon: Span::ZERO, rules_version: 0 };
}

impl<S: Store> Engine<S> {
    /// Returns the id of a follow-up of this purpose: derived from the caller's, or a new one, so that the store can send
    /// the Plan again after a lost answer.
    pub(crate) fn once_id(&self, purpose: &str, id: Option<&str>, rules_version: u64) -> OnceId {
        let drawn;
        let id = match id {
            Some(id) => Some(id),
            None if self.inner.store.may_lose_answers() => {
                drawn = self.new_id();
                Some(drawn.as_str())
            }
            None => None,
        };
        let hasher = self.inner.hashers.current();
        OnceId {
            id: id.map(|id| hasher.subject([(purpose, id)])),
            again: id.map(|id| hasher.subject([(purpose, id), ("planned", "again")])),
            horizon: self.inner.horizon,
            rules_version,
        }
    }

    /// Returns a request id that was never used before.
    pub fn new_id(&self) -> String {
        format!("{:032x}", self.inner.tokens.next().0)
    }

    /// Applies one operation under every rule that matches the request. `operation` gets the cost under the rule.
    pub(super) async fn on_matched<'r>(
        &self,
        rules: &'r ActiveRules,
        request: Request<'_>,
        id: OnceId,
        operation: fn(u64) -> Operation,
    ) -> Result<Vec<Answered<'r>>, FollowUpError> {
        // The odd units of a record under a sharded rule start at a random shard.
        let request = Request { seed: self.inner.new_seed(), ..request };
        let plan = |now: Time| {
            let mut plan = Plan::new();
            rules.rules.plan_follow_up(&request, &self.inner.hashers, now, operation, &mut plan)?;
            self.inner.store.place_subjects(&mut plan);
            self.inner.note_names(&rules.rules, &request, &plan);
            Ok(plan.items().to_vec())
        };
        self.apply_once(id, plan).await
    }

    /// Applies follow-ups, those of each hash slot in one step and once per id. `plan` returns the items for an instant.
    ///
    /// The items of a Plan are independent: if the store's clock is in another calendar period than ours, only the items
    /// of calendar quotas are planned and sent again.
    pub(crate) async fn apply_once<'r>(
        &self,
        id: OnceId,
        plan: impl Fn(Time) -> Result<Vec<Item<'r>>, PlanError>,
    ) -> Result<Vec<Answered<'r>>, FollowUpError> {
        let items = plan(self.inner.store.now())?;
        let parts = by_hash_slot(&items);
        let applied = parts.iter().map(|indexes| self.apply_part(id, &items, indexes, &plan));
        let mut answers: Vec<Option<Answered<'r>>> = items.iter().map(|_| None).collect();
        for (indexes, part) in parts.iter().zip(join_all(applied).await) {
            for (index, answered) in indexes.iter().zip(part?) {
                answers[*index] = Some(answered);
            }
        }
        Ok(answers.into_iter().flatten().collect())
    }

    async fn apply_part<'r>(
        &self,
        id: OnceId,
        items: &[Item<'r>],
        indexes: &[usize],
        plan: &impl Fn(Time) -> Result<Vec<Item<'r>>, PlanError>,
    ) -> Result<Vec<Answered<'r>>, FollowUpError> {
        let part: Vec<Item<'r>> = indexes.iter().map(|index| items[*index]).collect();
        let (mut answers, took_effect) = self.apply_items(id.id, id, &part).await?;
        let outdated = answers.iter().find_map(|answered| match answered.answer.verdict {
            Verdict::Declined(Decline::Recompute { at }) => Some(at),
            _ => None,
        });
        let Some(at) = outdated else { return Ok(answers) };
        let planned = plan(at)?;
        let is_outdated = |answered: &Answered<'_>| {
            matches!(answered.answer.verdict, Verdict::Declined(Decline::Recompute { .. }))
        };
        let again: Vec<(usize, Item<'r>)> = answers
            .iter()
            .enumerate()
            .filter(|(_, answered)| is_outdated(answered))
            .filter_map(|(index, answered)| {
                let same = |item: &&Item<'r>| item.key.fingerprint() == answered.item.key.fingerprint();
                Some((index, *planned.iter().find(same)?))
            })
            .collect();
        let items: Vec<Item<'r>> = again.iter().map(|(_, item)| *item).collect();
        // If the slot remembers the id already, these items need another one. It is the same in every attempt.
        let under = if took_effect { id.again } else { id.id };
        let (repeated, _) = self.apply_items(under, id, &items).await?;
        for ((index, _), answered) in again.into_iter().zip(repeated) {
            answers[index] = answered;
        }
        Ok(answers)
    }

    /// Applies items of one hash slot. Returns the answers, and whether something was written.
    async fn apply_items<'r>(
        &self,
        under: Option<Subject>,
        id: OnceId,
        items: &[Item<'r>],
    ) -> Result<(Vec<Answered<'r>>, bool), FollowUpError> {
        let mut plan = Plan::new();
        for item in items {
            plan.push(*item)?;
        }
        if let Some(under) = under {
            plan.set_request_id(under, id.horizon, id.rules_version);
        }
        let outcome = match self.inner.store.apply(&plan).await {
            Ok(outcome) => outcome,
            Err(StoreError::IdReused) => return Err(CheckError::IdReused.into()),
            Err(error) => return Err(error.into()),
        };
        let took_effect = outcome.replayed || outcome.took_effect(&plan);
        let Outcome { now, answers, replayed, .. } = outcome;
        let answers = items.iter().zip(answers);
        let answers = answers.map(|(item, answer)| Answered { item: *item, answer, now, replayed });
        Ok((answers.collect(), took_effect))
    }
}

/// The indexes of the items, by the hash slot of their keys.
fn by_hash_slot(items: &[Item<'_>]) -> Vec<Vec<usize>> {
    let mut parts: Vec<(Subject, Vec<usize>)> = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let tag = item.key.tag();
        match parts.iter_mut().find(|(known, _)| *known == tag) {
            Some((_, indexes)) => indexes.push(index),
            None => parts.push((tag, vec![index])),
        }
    }
    parts.into_iter().map(|(_, indexes)| indexes).collect()
}

/// Adds up the results of the shards of each subject, in order. The shards of one subject follow each other. The result has
/// the rule of each.
pub(super) fn one_per_subject<T>(
    results: impl Iterator<Item = ((u32, Option<Shard>), T)>,
    add: impl Fn(&mut T, &T),
) -> Vec<(u32, T)> {
    let mut summed: Vec<(u32, T)> = Vec::new();
    for ((rule_index, shard), result) in results {
        match summed.last_mut() {
            Some((known, sum)) if *known == rule_index && shard.is_some_and(|shard| shard.index() > 0) => {
                add(sum, &result);
            }
            _ => summed.push((rule_index, result)),
        }
    }
    summed
}

impl Answered<'_> {
    /// Its rule, and its shard if the rule is sharded.
    pub(super) const fn place(&self) -> (u32, Option<Shard>) {
        (self.item.rule_index, self.item.shard)
    }
}

/// Keeps one result of each rule, in order. While a hash key is replaced, a rule answers for both keys, one after the
/// other. The new result is kept if `is_better`.
pub(super) fn one_per_rule<T>(
    results: impl Iterator<Item = (u32, T)>,
    is_better: impl Fn(&T, &T) -> bool,
) -> Vec<T> {
    let mut kept: Vec<(u32, T)> = Vec::new();
    for (rule_index, result) in results {
        match kept.last_mut() {
            Some((known, last)) if *known == rule_index => {
                if is_better(&result, last) {
                    *last = result;
                }
            }
            _ => kept.push((rule_index, result)),
        }
    }
    kept.into_iter().map(|(_, result)| result).collect()
}
