//! Plans that travel together: one call of the script for all of them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;
use tollgate_core::Span;

use super::TimeSource;
use super::error::RedisError;
use super::reply::{word, words};
use super::script::{Kinds, Script, Scripts};
use super::wire::{Encoded, cut};

/// A Plan and who waits for it.
pub(super) struct Job {
    pub(super) plan: Encoded,
    /// Not to be sent after this.
    pub(super) deadline: Instant,
    /// Whoever waits, if anybody does.
    pub(super) asker: Option<oneshot::Sender<Result<Vec<u8>, RedisError>>>,
}

impl Job {
    /// Whether somebody wants it still. If not it was never sent, and is not carried out.
    pub(super) fn is_wanted(&self, now: Instant) -> bool {
        now < self.deadline && self.asker.as_ref().is_none_or(|asker| !asker.is_closed())
    }

    /// Tells whoever waits. That nobody does any more is their business.
    pub(super) fn answer(self, answer: Result<Vec<u8>, RedisError>) {
        if let Some(asker) = self.asker {
            drop(asker.send(answer));
        }
    }
}

/// Which clock decides, and how long state is kept beyond its death.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) clock: u8,
    pub(super) tolerance_us: u64,
    pub(super) margin_ms: u64,
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
pub(super) struct Batch {
    pub(super) jobs: Vec<Job>,
    pub(super) sent: Instant,
    script: Arc<Script>,
    /// Number of keys, keys and argument, as they go over the wire: the same whether called by digest or by text.
    tail: Vec<u8>,
    tail_words: usize,
}

impl Batch {
    /// Puts jobs together. A key that several of them touch is named once.
    pub(super) fn new(mut jobs: Vec<Job>, terms: Terms, scripts: &Scripts) -> Batch {
        let mut argument = Vec::with_capacity(32 + jobs.len() * 128);
        argument.push(terms.clock);
        argument.extend_from_slice(&(terms.tolerance_us as f64).to_le_bytes());
        argument.extend_from_slice(&(terms.margin_ms as f64).to_le_bytes());
        argument.extend_from_slice(&(jobs.len() as u16).to_le_bytes());
        let (mut places, mut keys) = (HashMap::<Vec<u8>, u16>::new(), Vec::new());
        let (mut kinds, mut count) = (Kinds::default(), 0_u16);
        for job in &mut jobs {
            kinds = kinds.union(job.plan.kinds);
            let own: Vec<u16> = job
                .plan
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
            argument.extend_from_slice(job.plan.body(own.into_iter()));
        }
        let mut tail = Vec::with_capacity(keys.len() + argument.len() + 32);
        word(&mut tail, count.to_string().as_bytes());
        tail.extend_from_slice(&keys);
        word(&mut tail, &argument);
        let tail_words = usize::from(count) + 2;
        Batch { jobs, sent: Instant::now(), script: Arc::clone(scripts.of(kinds)), tail, tail_words }
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
