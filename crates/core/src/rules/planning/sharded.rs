//! The items of sharded rules: a check asks one shard, a follow-up reaches all of them.

use super::Request;
use super::plan_items::PlanItems;
use crate::key::{Key, Subject, SubjectHasher, SubjectHashers};
use crate::limit::part::{Shard, Shards};
use crate::plan::{Item, PlanError};
use crate::rules::placement::Placement;
use crate::rules::rule_set::RuleSet;
use crate::rules::subject_selector::SubjectParts;

impl RuleSet {
    /// Adds the items of a sharded rule. `whole` is the item that a rule with one key would have.
    #[cold]
    pub(super) fn push_sharded<'r>(
        &'r self,
        shards: Shards,
        cost: u64,
        whole: &Item<'r>,
        (request, subjects, hashers): (&Request<'_>, &SubjectParts<'_>, &SubjectHashers),
        plans: &mut impl PlanItems<'r>,
    ) -> Result<(), PlanError> {
        let rule_index = whole.rule_index as usize;
        let rule = &self.rules[rule_index];
        let first = shards.of_seed(seed(request, hashers.current()));
        let item = |shard: Shard, hasher: &SubjectHasher| {
            let limit = whole.limit.part(shard).ok_or_else(|| PlanError::NotDivisible {
                rule: rule.keyspace.rule().to_owned(),
                shards: shards.count(),
            })?;
            let key = self.key_of_shard(rule_index, subjects, shard, hasher);
            Ok(Item { key, limit, shard: Some(shard), ..*whole })
        };
        if !plans.reaches_all_shards() {
            plans.push(rule, cost, item(first, hashers.current())?)?;
            if let Some(previous) = hashers.previous() {
                let key = self.key_of_shard(rule_index, subjects, first, previous);
                plans.push_copy_of_last(key)?;
            }
            return Ok(());
        }
        // All shards of one hash key, then those of the other, so that the results of each can be added up.
        for hasher in hashers.iter() {
            for shard in shards.all() {
                // Odd units go to the shards after the chosen one, so that small amounts are spread, too.
                let position = first_position(first, shard);
                plans.push(rule, position.part_of(cost), item(shard, hasher)?)?;
            }
        }
        Ok(())
    }

    /// Returns the key of one shard of a subject.
    fn key_of_shard(
        &self,
        rule_index: usize,
        subjects: &SubjectParts<'_>,
        shard: Shard,
        hasher: &SubjectHasher,
    ) -> Key<'_> {
        let keyspace = &self.rules[rule_index].keyspace;
        let Placement { partition, slots } = &self.placement;
        let subject = subjects.hash(hasher);
        let tag: Subject = if self.compiled[rule_index].uses_partition_tag {
            subjects.hash_partition(hasher, partition)
        } else {
            subject
        };
        let tag = match slots {
            Some(slots) => tag.slot_tag_of_shard(*slots, shard),
            None => tag.of_shard(shard),
        };
        keyspace.key_tagged(tag, subject.of_shard(shard))
    }
}

/// Returns where a shard is if shards are counted from `first`.
const fn first_position(first: Shard, shard: Shard) -> Shard {
    shard.plus(first.of().count() - first.index())
}

/// Returns the bits that choose the shard: the same for every attempt under one request id.
fn seed(request: &Request<'_>, hasher: &SubjectHasher) -> u64 {
    match request.id {
        Some(id) => hasher.subject([("shard of a request", id)]).to_u128() as u64,
        None => request.seed,
    }
}
