//! Plans that travel together: one call of the script for all of them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tollgate_core::Span;

use super::TimeSource;
use super::error::RedisError;
use super::job::Job;
use super::reply::{word, words};
use super::script::{Kinds, Script, Scripts};
use super::wire::{Encoded, cut};

/// Which clock decides, and how long state is kept beyond its death.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    clock: u8,
    tolerance_us: u64,
    margin_ms: u64,
}

impl Terms {
    pub(super) fn new(time: TimeSource, margin: Duration) -> Terms {
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

/// One call of the script.
pub(super) struct Call {
    script: Arc<Script>,
    /// Number of keys, keys and argument, as they go over the wire: the same whether called by digest or by text.
    tail: Vec<u8>,
    tail_words: usize,
}

impl Call {
    /// Puts Plans together. A key that several of them touch is named once.
    pub(super) fn new<'p>(
        plans: impl ExactSizeIterator<Item = &'p mut Encoded>,
        terms: Terms,
        scripts: &Scripts,
    ) -> Call {
        let mut argument = Vec::with_capacity(32 + plans.len() * 128);
        argument.push(terms.clock);
        argument.extend_from_slice(&(terms.tolerance_us as f64).to_le_bytes());
        argument.extend_from_slice(&(terms.margin_ms as f64).to_le_bytes());
        argument.extend_from_slice(&(plans.len() as u16).to_le_bytes());
        let (mut places, mut keys) = (HashMap::<Vec<u8>, u16>::new(), Vec::new());
        let (mut kinds, mut count) = (Kinds::default(), 0_u16);
        for plan in plans {
            kinds = kinds.union(plan.kinds);
            let own: Vec<u16> = plan
                .keys()
                .map(|key| {
                    places.get(key).copied().unwrap_or_else(|| {
                        count += 1;
                        word(&mut keys, key);
                        places.insert(key.to_vec(), count);
                        count
                    })
                })
                .collect();
            argument.extend_from_slice(plan.body(own.into_iter()));
        }
        let mut tail = Vec::with_capacity(keys.len() + argument.len() + 32);
        word(&mut tail, count.to_string().as_bytes());
        tail.extend_from_slice(&keys);
        word(&mut tail, &argument);
        let tail_words = usize::from(count) + 2;
        Call { script: Arc::clone(scripts.of(kinds)), tail, tail_words }
    }

    /// Writes the call, by digest or, if Redis does not know that, with the script's text.
    pub(super) fn write(&self, out: &mut Vec<u8>, by_digest: bool) {
        let Script { source, digest } = &*self.script;
        let (command, script) = if by_digest { ("EVALSHA", digest) } else { ("EVAL", source) };
        words(out, self.tail_words + 2);
        word(out, command.as_bytes());
        word(out, script.as_bytes());
        out.extend_from_slice(&self.tail);
    }
}

/// A call and who waits for what in it.
pub(super) struct Batch {
    pub(super) jobs: Vec<Job>,
    pub(super) call: Call,
    pub(super) sent: Instant,
    /// Whether nothing follows it of what was launched together with it.
    pub(super) last_of_load: bool,
}

impl Batch {
    /// Whether Redis is to be told that the slot's move is known.
    pub(super) fn asks(&self) -> bool {
        self.jobs.first().is_some_and(|job| job.way.asking)
    }

    /// Hands each its own part of the reply.
    pub(super) fn answer(self, mut reply: &[u8]) {
        for job in self.jobs {
            let own = cut(&mut reply, job.plan.items).map(<[u8]>::to_vec);
            job.answer(own);
        }
    }

    /// Tells all of them what went wrong.
    pub(super) fn fail(self, error: &RedisError) {
        self.jobs.into_iter().for_each(|job| job.answer(Err(error.clone())));
    }
}

/// Divides jobs into calls: Redis takes only keys of one slot in one call, and no call may keep it busy for long.
pub(super) fn divide(jobs: Vec<Job>) -> Vec<Vec<Job>> {
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
