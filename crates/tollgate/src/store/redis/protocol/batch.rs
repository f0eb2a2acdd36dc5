//! Plans that travel together: one call of the script for all of them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::Instant;
use tollgate_core::Span;

use super::reply::{word, words};
use super::script::{Kinds, Script, Scripts};
use super::wire::{Encoded, OwnReply, cut};
use crate::store::redis::TimeSource;
use crate::store::redis::client::job::Job;
use crate::store::redis::error::RedisError;

/// Which clock decides, and how long state is kept beyond its death.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    clock: u8,
    tolerance_us: u64,
    margin_ms: u64,
}

impl Terms {
    pub(crate) fn new(time: TimeSource, margin: Duration) -> Terms {
        let (clock, tolerance) = match time {
            TimeSource::Store => (0, Span::ZERO),
            TimeSource::Caller { tolerance } => (1, tolerance),
            TimeSource::Application => (2, Span::ZERO),
        };
        // As long as spans get: Redis takes no more.
        let margin_ms = u64::try_from(margin.as_millis()).unwrap_or(u64::MAX).min(Span::MAX.us() / 1_000);
        Terms { clock, tolerance_us: tolerance.us(), margin_ms }
    }
}

/// Stands for a key that nobody has touched.
const UNTOUCHED: u16 = u16::MAX;

/// One call of the script.
pub(crate) struct Call {
    script: Arc<Script>,
    /// Number of keys, keys and argument, as they go over the wire: the same whether called by digest or by text.
    tail: Vec<u8>,
    tail_words: usize,
    /// Whose reply comes when, by place among the Plans, and to how many items.
    order: Vec<(u16, usize)>,
}

/// Equal Plans, carried out one after another, by place among all.
type Group = SmallVec<[u16; 2]>;

impl Call {
    /// Puts Plans together. A key that several of them touch is named once, and equal Plans are sent once: a Plan joins
    /// another if none that is different has touched its keys in between, so that no key sees a difference.
    pub(crate) fn new(plans: &mut [&mut Encoded], terms: Terms, scripts: &Scripts) -> Call {
        // A quick hash will do: what tells keys of one rule apart was hashed with a secret.
        let (mut places, mut keys) =
            (HashMap::<Vec<u8>, u16, foldhash::fast::RandomState>::default(), Vec::new());
        // By place of the key, the group that touched it last.
        let mut touched: Vec<u16> = Vec::new();
        let (mut groups, mut kinds) = (Vec::<Group>::with_capacity(plans.len()), Kinds::default());
        for member in 0..plans.len() {
            let own: SmallVec<[u16; 4]> = plans[member]
                .keys()
                .map(|key| {
                    places.get(key).copied().unwrap_or_else(|| {
                        touched.push(UNTOUCHED);
                        let place = touched.len() as u16;
                        word(&mut keys, key);
                        places.insert(key.to_vec(), place);
                        place
                    })
                })
                .collect();
            plans[member].put(&own);
            kinds = kinds.union(plans[member].kinds);
            let last = own.first().map_or(UNTOUCHED, |&place| touched[usize::from(place) - 1]);
            let joined = groups.get_mut(usize::from(last)).filter(|group| {
                own.iter().all(|&place| touched[usize::from(place) - 1] == last)
                    && plans[member].is_like(plans[usize::from(group[0])])
            });
            match joined {
                Some(group) => group.push(member as u16),
                None => {
                    own.iter().for_each(|&place| touched[usize::from(place) - 1] = groups.len() as u16);
                    groups.push(Group::from_slice(&[member as u16]));
                }
            }
        }
        let mut argument = Vec::with_capacity(32 + groups.len() * 128);
        argument.push(terms.clock);
        argument.extend_from_slice(&(terms.tolerance_us as f64).to_le_bytes());
        argument.extend_from_slice(&(terms.margin_ms as f64).to_le_bytes());
        argument.extend_from_slice(&(groups.len() as u16).to_le_bytes());
        for group in &groups {
            plans[usize::from(group[0])].write(&mut argument, group.len() as u16);
        }
        let mut tail = Vec::with_capacity(keys.len() + argument.len() + 32);
        word(&mut tail, touched.len().to_string().as_bytes());
        tail.extend_from_slice(&keys);
        word(&mut tail, &argument);
        Call {
            script: Arc::clone(scripts.of(kinds)),
            tail,
            tail_words: touched.len() + 2,
            order: groups
                .into_iter()
                .flatten()
                .map(|place| (place, plans[usize::from(place)].items))
                .collect(),
        }
    }

    /// Gives each Plan, by place, its own part of the reply.
    pub(crate) fn split<'b>(
        &self,
        mut reply: &'b [u8],
    ) -> impl Iterator<Item = (usize, Result<&'b [u8], RedisError>)> {
        self.order.iter().map(move |&(place, items)| (usize::from(place), cut(&mut reply, items)))
    }

    /// Writes the call, by digest or, if Redis does not know that, with the script's text.
    pub(crate) fn write(&self, out: &mut Vec<u8>, by_digest: bool) {
        let Script { source, digest } = &*self.script;
        let (command, script) = if by_digest { ("EVALSHA", digest) } else { ("EVAL", source) };
        words(out, self.tail_words + 2);
        word(out, command.as_bytes());
        word(out, script.as_bytes());
        out.extend_from_slice(&self.tail);
    }
}

/// A call and who waits for what in it.
pub(crate) struct Batch {
    pub(crate) jobs: Vec<Job>,
    pub(crate) call: Call,
    pub(crate) sent: Instant,
    /// Whether nothing follows it of what was launched together with it.
    pub(crate) last_of_load: bool,
}

impl Batch {
    /// Whether Redis is to be told that the slot's move is known.
    pub(crate) fn asks_for_admission(&self) -> bool {
        self.jobs.first().is_some_and(|job| job.way.asking)
    }

    /// Hands each its own part of the reply.
    pub(crate) fn answer(self, reply: &[u8]) {
        let mut jobs: Vec<Option<Job>> = self.jobs.into_iter().map(Some).collect();
        for (place, part) in self.call.split(reply) {
            if let Some(job) = jobs[place].take() {
                job.answer(part.map(OwnReply::from_slice));
            }
        }
    }

    /// Tells all of them what went wrong.
    pub(crate) fn fail(self, error: &RedisError) {
        self.jobs.into_iter().for_each(|job| job.answer(Err(error.clone())));
    }
}

/// Divides jobs into calls: Redis takes only keys of one slot in one call, and no call may keep it busy for long.
pub(crate) fn divide(jobs: Vec<Job>) -> Vec<Vec<Job>> {
    struct Open {
        slot: u16,
        work: usize,
        place: usize,
    }
    let mut calls: Vec<Vec<Job>> = Vec::with_capacity(1);
    let mut open: Vec<Open> = Vec::with_capacity(1);
    for job in jobs {
        if job.way.alone {
            calls.push(vec![job]);
            continue;
        }
        let (slot, work) = (job.slot, job.plan.work);
        match open.iter_mut().find(|open| open.slot == slot) {
            Some(open) if open.work + work <= WORK_MAX => {
                open.work += work;
                calls[open.place].push(job);
            }
            found => {
                let now = Open { slot, work, place: calls.len() };
                match found {
                    Some(full) => *full = now,
                    None => open.push(now),
                }
                calls.push(vec![job]);
            }
        }
    }
    calls
}

/// So much work goes into one call at most, where a plain item is one.
const WORK_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use tollgate_core::algorithm::concurrency::Concurrency;
    use tollgate_core::algorithm::fixed_window::FixedWindow;
    use tollgate_core::{Item, Keyspace, Limit, Operation, Plan, SubjectHasher, Time, Token};

    use super::super::wire::Attempt;
    use super::*;
    use crate::store::redis::client::job::Way;

    fn job(limit: Limit, slot: u16, alone: bool) -> Job {
        let scope = Keyspace::new("test", "rule").expect("a name");
        let key = scope.key(SubjectHasher::new([1; 32]).subject([("user", "u")]));
        let mut plan = Plan::new();
        plan.push(Item::new(key, limit, Operation::Charge { cost: 1, token: Token(1) })).expect("a plan");
        let plan = Encoded::new(&plan, "", Time::ZERO, Attempt::Only);
        let way = Way { alone, ..Way::default() };
        Job { plan, slot, deadline: Instant::now(), asker: None, way, _permit: None }
    }

    fn sizes(jobs: Vec<Job>) -> Vec<usize> {
        divide(jobs).iter().map(Vec::len).collect()
    }

    #[test]
    fn a_call_has_keys_of_one_slot_and_those_that_must_go_alone_do() {
        let window = Limit::FixedWindow(FixedWindow::new(5, Span::from_secs(1)).expect("a limit"));
        let job = |(slot, alone)| job(window, slot, alone);
        let jobs = [(1, false), (2, false), (1, false), (3, true), (2, false), (2, true), (1, false)];
        assert_eq!(sizes(jobs.into_iter().map(job).collect()), [3, 2, 1, 1]);
    }

    #[test]
    fn a_call_carries_no_more_work_than_it_may() {
        let leases = |most| Limit::Concurrency(Concurrency::new(most, Span::from_secs(1)).expect("a limit"));
        let jobs = |most| (0..64).map(|_| job(leases(most), 0, false)).collect();
        assert_eq!(sizes(jobs(16)), [64]);
        // A thousand leases are looked at by each of them.
        assert_eq!(sizes(jobs(1_000)), [4; 16]);
        assert_eq!(sizes(jobs(60_000)), [1; 64]);
    }
}
