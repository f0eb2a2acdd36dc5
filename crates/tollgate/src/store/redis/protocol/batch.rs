//! Plans that travel together: one call of the script for all of them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::Instant;
use tollgate_core::Span;

use super::plan_codec::{EncodedPlan, PlanReply, split_off_reply};
use super::resp::{write_array_header, write_bulk_string};
use super::script::{KindSet, Script, Scripts};
use crate::store::redis::TimeSource;
use crate::store::redis::client::pending_plan::PendingPlan;
use crate::store::redis::error::RedisError;

/// Settings that every call carries: which clock decides, and how long state is kept after it has stopped counting.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallSettings {
    clock: u8,
    tolerance_us: u64,
    margin_ms: u64,
}

impl CallSettings {
    pub(crate) fn new(time: TimeSource, margin: Duration) -> CallSettings {
        let (clock, tolerance) = match time {
            TimeSource::Store => (0, Span::ZERO),
            TimeSource::Caller { tolerance } => (1, tolerance),
            TimeSource::Application => (2, Span::ZERO),
        };
        // Redis accepts no longer expiry.
        let margin_ms = u64::try_from(margin.as_millis()).unwrap_or(u64::MAX).min(Span::MAX.us() / 1_000);
        CallSettings { clock, tolerance_us: tolerance.us(), margin_ms }
    }
}

/// One call of the script.
pub(crate) struct Call {
    script: Arc<Script>,
    /// Number of keys, keys and argument in RESP. The same whether the script is called by digest or by source.
    tail: Vec<u8>,
    tail_arguments: usize,
    /// The order of the replies: index of the Plan and length of its answers.
    reply_order: Vec<(u16, usize)>,
}

/// Equal Plans that the script applies one after another, by index.
type Group = SmallVec<[u16; 2]>;

/// The group of a key that no Plan has used yet.
const NO_GROUP: u16 = u16::MAX;

impl Call {
    /// Combines Plans into one call to the node of this number. Each key is sent once, and so are equal Plans: a Plan joins an earlier equal one if
    /// no different Plan has used its keys in between, so the order on every key stays the same.
    pub(crate) fn new(
        plans: &mut [&mut EncodedPlan],
        node: u64,
        settings: CallSettings,
        scripts: &Scripts,
    ) -> Call {
        // A fast hash is safe: the part of a key that clients choose was hashed with a secret.
        let (mut key_numbers, mut keys) =
            (HashMap::<Vec<u8>, u16, foldhash::fast::RandomState>::default(), Vec::new());
        // For each key, the group that used it last. Key numbers start at 1.
        let mut last_groups: Vec<u16> = Vec::new();
        let (mut groups, mut kinds) = (Vec::<Group>::with_capacity(plans.len()), KindSet::default());
        for index in 0..plans.len() {
            let own: SmallVec<[u16; 4]> = plans[index]
                .keys()
                .map(|key| {
                    key_numbers.get(key).copied().unwrap_or_else(|| {
                        last_groups.push(NO_GROUP);
                        let number = last_groups.len() as u16;
                        write_bulk_string(&mut keys, key);
                        key_numbers.insert(key.to_vec(), number);
                        number
                    })
                })
                .collect();
            plans[index].set_key_numbers(&own);
            plans[index].set_node(node);
            kinds = kinds.union(plans[index].kinds);
            let last = own.first().map_or(NO_GROUP, |&number| last_groups[usize::from(number) - 1]);
            let joined = groups.get_mut(usize::from(last)).filter(|group| {
                own.iter().all(|&number| last_groups[usize::from(number) - 1] == last)
                    && plans[index].can_join(plans[usize::from(group[0])])
            });
            match joined {
                Some(group) => group.push(index as u16),
                None => {
                    own.iter().for_each(|&number| last_groups[usize::from(number) - 1] = groups.len() as u16);
                    groups.push(Group::from_slice(&[index as u16]));
                }
            }
        }
        let mut argument = Vec::with_capacity(32 + groups.len() * 128);
        let are_follow_ups = !plans.is_empty() && plans.iter().all(|plan| plan.is_follow_up);
        let spare_key = plans.iter().find_map(|plan| plan.spare_key.as_ref()).filter(|_| are_follow_ups);
        argument.push(u8::from(are_follow_ups) + u8::from(spare_key.is_some()));
        argument.push(settings.clock);
        argument.extend_from_slice(&(settings.tolerance_us as f64).to_le_bytes());
        argument.extend_from_slice(&(settings.margin_ms as f64).to_le_bytes());
        argument.extend_from_slice(&(groups.len() as u16).to_le_bytes());
        for group in &groups {
            plans[usize::from(group[0])].write(&mut argument, group.len() as u16);
        }
        let key_count = last_groups.len() + usize::from(spare_key.is_some());
        if let Some(key) = spare_key {
            write_bulk_string(&mut keys, key.as_bytes());
        }
        let mut tail = Vec::with_capacity(keys.len() + argument.len() + 32);
        write_bulk_string(&mut tail, key_count.to_string().as_bytes());
        tail.extend_from_slice(&keys);
        write_bulk_string(&mut tail, &argument);
        Call {
            script: Arc::clone(scripts.get(kinds)),
            tail,
            tail_arguments: key_count + 2,
            reply_order: groups
                .into_iter()
                .flatten()
                .map(|index| (index, plans[usize::from(index)].answers_length))
                .collect(),
        }
    }

    /// Splits the reply into those of the Plans, each with the Plan's index.
    pub(crate) fn split<'b>(
        &self,
        mut reply: &'b [u8],
    ) -> impl Iterator<Item = (usize, Result<&'b [u8], RedisError>)> {
        self.reply_order
            .iter()
            .map(move |&(index, length)| (usize::from(index), split_off_reply(&mut reply, length)))
    }

    /// Writes the command: by digest, or with the script's source if Redis does not have the script.
    pub(crate) fn write(&self, out: &mut Vec<u8>, by_digest: bool) {
        let Script { source, digest } = &*self.script;
        let (command, script) = if by_digest { ("EVALSHA", digest) } else { ("EVAL", source) };
        write_array_header(out, self.tail_arguments + 2);
        write_bulk_string(out, command.as_bytes());
        write_bulk_string(out, script.as_bytes());
        out.extend_from_slice(&self.tail);
    }
}

/// A call in flight and the Plans in it.
pub(crate) struct Batch {
    pub(crate) pending: Vec<PendingPlan>,
    pub(crate) call: Call,
    pub(crate) sent: Instant,
    /// Whether this is the last call of its pipeline.
    pub(crate) last_of_pipeline: bool,
}

impl Batch {
    /// Whether `ASKING` must be sent first.
    pub(crate) fn needs_asking(&self) -> bool {
        self.pending.first().is_some_and(|pending| pending.redirects.asking)
    }

    /// Gives each Plan its part of the reply.
    pub(crate) fn complete(self, reply: &[u8]) {
        let mut pending: Vec<Option<PendingPlan>> = self.pending.into_iter().map(Some).collect();
        for (index, reply) in self.call.split(reply) {
            if let Some(pending) = pending[index].take() {
                pending.complete(reply.map(PlanReply::from_slice));
            }
        }
    }

    /// Fails all Plans with the same error.
    pub(crate) fn fail(self, error: &RedisError) {
        self.pending.into_iter().for_each(|pending| pending.complete(Err(error.clone())));
    }
}

/// Most work in one call, where an ordinary item counts as 1. Bounds how long one script occupies Redis.
const WORK_MAX: usize = 256;

/// Divides Plans into calls, each with keys of one hash slot and at most [`WORK_MAX`] of work.
///
/// Follow-ups travel in separate calls, because a full Redis fails a call with a charge as a whole. They go first: a
/// follow-up never depends on a charge that is still waiting, but a charge may need what a follow-up gives back.
pub(crate) fn divide_into_calls(pending: Vec<PendingPlan>) -> Vec<Vec<PendingPlan>> {
    /// The call that the next Plan of this hash slot joins.
    struct OpenCall {
        hash_slot: u16,
        is_follow_up: bool,
        work: usize,
        index: usize,
    }
    let mut calls: Vec<Vec<PendingPlan>> = Vec::with_capacity(1);
    let mut open_calls: Vec<OpenCall> = Vec::with_capacity(1);
    let (follow_ups, charges): (Vec<_>, Vec<_>) =
        pending.into_iter().partition(|pending| pending.plan.is_follow_up);
    for pending in follow_ups.into_iter().chain(charges) {
        if pending.redirects.separate {
            calls.push(vec![pending]);
            continue;
        }
        let (hash_slot, is_follow_up, work) =
            (pending.hash_slot, pending.plan.is_follow_up, pending.plan.work);
        let joins = |open: &&mut OpenCall| open.hash_slot == hash_slot && open.is_follow_up == is_follow_up;
        match open_calls.iter_mut().find(joins) {
            Some(open) if open.work + work <= WORK_MAX => {
                open.work += work;
                calls[open.index].push(pending);
            }
            found => {
                let new = OpenCall { hash_slot, is_follow_up, work, index: calls.len() };
                match found {
                    Some(full) => *full = new,
                    None => open_calls.push(new),
                }
                calls.push(vec![pending]);
            }
        }
    }
    calls
}

#[cfg(test)]
mod tests {
    use tollgate_core::algorithm::concurrency::Concurrency;
    use tollgate_core::algorithm::fixed_window::FixedWindow;
    use tollgate_core::{Item, Keyspace, Limit, Operation, Plan, SubjectHasher, Time, Token};

    use super::super::plan_codec::Attempt;
    use super::*;
    use crate::store::redis::client::pending_plan::RedirectState;

    fn pending(limit: Limit, hash_slot: u16, separate: bool) -> PendingPlan {
        pending_operation(limit, Operation::Charge { cost: 1, token: Token(1) }, hash_slot, separate)
    }

    fn pending_operation(limit: Limit, operation: Operation, hash_slot: u16, separate: bool) -> PendingPlan {
        let keyspace = Keyspace::new("test", "rule").expect("a name");
        let key = keyspace.key(SubjectHasher::new([1; 32]).subject([("user", "u")]));
        let mut plan = Plan::new();
        plan.push(Item::new(key, limit, operation)).expect("a plan");
        let plan = EncodedPlan::new(&plan, "", Time::ZERO, Attempt::Unnumbered);
        let redirects = RedirectState { separate, ..RedirectState::default() };
        let queued = Instant::now();
        PendingPlan { plan, hash_slot, queued, deadline: queued, reply_to: None, redirects, _permit: None }
    }

    fn call_sizes(plans: Vec<PendingPlan>) -> Vec<usize> {
        divide_into_calls(plans).iter().map(Vec::len).collect()
    }

    #[test]
    fn a_call_has_keys_of_one_hash_slot_and_separate_plans_get_their_own() {
        let window = Limit::FixedWindow(FixedWindow::new(5, Span::from_secs(1)).expect("a limit"));
        let pending = |(hash_slot, separate)| pending(window, hash_slot, separate);
        let plans = [(1, false), (2, false), (1, false), (3, true), (2, false), (2, true), (1, false)];
        assert_eq!(call_sizes(plans.into_iter().map(pending).collect()), [3, 2, 1, 1]);
    }

    #[test]
    fn follow_ups_travel_before_charges_and_apart_from_them() {
        let leases = Limit::Concurrency(Concurrency::new(5, Span::from_secs(1)).expect("a limit"));
        let charge = Operation::Charge { cost: 1, token: Token(1) };
        let release = Operation::Release { token: Token(1) };
        let plans = [(charge, 1), (release, 1), (charge, 1), (release, 2), (release, 1), (charge, 2)];
        let plans =
            plans.map(|(operation, hash_slot)| pending_operation(leases, operation, hash_slot, false));
        let calls = divide_into_calls(plans.into());
        let follow_ups = |call: &Vec<PendingPlan>| {
            call.iter().map(|pending| (pending.plan.is_follow_up, pending.hash_slot)).collect::<Vec<_>>()
        };
        let calls: Vec<_> = calls.iter().map(follow_ups).collect();
        assert_eq!(
            calls,
            [vec![(true, 1), (true, 1)], vec![(true, 2)], vec![(false, 1), (false, 1)], vec![(false, 2)]]
        );
    }

    #[test]
    fn a_call_carries_at_most_the_maximum_work() {
        let leases =
            |limit| Limit::Concurrency(Concurrency::new(limit, Span::from_secs(1)).expect("a limit"));
        let plans = |limit, count| (0..count).map(|_| pending(leases(limit), 0, false)).collect();
        // The work of a lease does not depend on the limit.
        for limit in [16, 65_536] {
            assert_eq!(call_sizes(plans(limit, 128)), [128]);
            assert_eq!(call_sizes(plans(limit, 200)), [128, 72]);
        }
    }
}
