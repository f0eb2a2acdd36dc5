//! Posting: what limiters in this process admitted under quotas and meters while the store was away is booked in the store
//! when it is back.
//!
//! Only what the store has surely not charged is posted, as one sum for each key and period, under an id, so that a repeat
//! after a lost answer books nothing twice. A sum whose period is over is not posted. What is not posted is counted as lost.
//! The sums are bounded in number, and are sent at a bounded rate.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tollgate_core::algorithm::quota::QuotaPeriod;
use tollgate_core::plan::answer::{AnsweredBy, PolicyKind};
use tollgate_core::{
    Answer, Item, Limit, Operation, Outcome, Plan, Span, Store, StoreError, Subject, SubjectHasher, Time,
    Verdict,
};

use super::slices::Owner;
use crate::engine::new_nonce;

/// The most sums that wait. About 6 MiB.
const SUMS_MAX: usize = 16_384;
/// How many sums are sent each time.
const SENT_AT_ONCE: usize = 50;
/// How long the store remembers the id of a post.
const HORIZON: Span = Span::from_secs(24 * 3_600);
/// How long after its first attempt a post is repeated: as long as the store remembers its id for certain.
const REPEATED_MAX: Duration = Duration::from_secs(23 * 3_600);
/// How long after the last local admission a sum waits for an answer of the store before it is sent all the same.
const IDLE: Duration = Duration::from_secs(1);

/// What became of local admissions under quotas and meters since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PostCounts {
    /// Units that were booked in the store.
    pub posted_units: u64,
    /// Units that were not: the store may have charged them already, their period was over, or there were too many subjects.
    pub lost_units: u64,
    /// Sums that wait for the store.
    pub waiting: u64,
}

pub(super) struct Posting {
    backlog: Mutex<Backlog>,
    /// Whether something was admitted locally since the store has answered.
    is_away: AtomicBool,
    /// Whether a task is sending.
    is_sending: AtomicBool,
    posted_units: AtomicU64,
    lost_units: AtomicU64,
    /// What the last report had counted.
    reported: Mutex<PostCounts>,
}

struct Backlog {
    /// Hashes ids with a key of this process.
    server: SubjectHasher,
    outage: u64,
    /// When something was last admitted locally.
    last_noted: Option<Instant>,
    /// By key: the admissions of the outage.
    open: BTreeMap<u128, Sum>,
    /// What is sent, in order.
    sealed: VecDeque<Post>,
}

/// The local admissions of one key in one period.
struct Sum {
    owner: Owner,
    limit: Limit,
    ip_subjects_max: Option<u32>,
    units: u64,
    first: Time,
    last: Time,
}

/// A sum that does not change any more.
struct Post {
    sum: Sum,
    id: Subject,
    /// The start of its period, once it is certain.
    start: Option<Time>,
    first_sent: Option<Instant>,
}

/// What became of an attempt.
enum Sent {
    Booked(u64),
    Lost,
    Later,
}

impl Posting {
    pub(super) fn new() -> Posting {
        let backlog = Backlog {
            server: SubjectHasher::new(process_key()),
            outage: 0,
            last_noted: None,
            open: BTreeMap::new(),
            sealed: VecDeque::new(),
        };
        Posting {
            backlog: Mutex::new(backlog),
            is_away: AtomicBool::new(false),
            is_sending: AtomicBool::new(false),
            posted_units: AtomicU64::new(0),
            lost_units: AtomicU64::new(0),
            reported: Mutex::default(),
        }
    }

    /// Notes what failure policies admitted. `is_unapplied` says that the store has surely not charged the Plan.
    pub(super) fn note(&self, plan: &Plan<'_>, outcome: &Outcome, is_unapplied: bool, now: Instant) {
        let answered = || plan.items().iter().zip(&outcome.answers);
        if answered().any(|(item, answer)| item.blocking && !answer.is_admitted()) {
            return;
        }
        for (item, answer) in answered() {
            let Some(units) = owed(plan, item, answer) else { continue };
            // The same request may be sent again under its id, and be charged then. A slice may have paid the item.
            let is_certain = is_unapplied && plan.request_id().is_none() && item.slices.is_none();
            if !(is_certain && self.lock().add(item, units, outcome.now, now)) {
                self.lost_units.fetch_add(units, Ordering::Relaxed);
            }
            self.is_away.store(true, Ordering::Release);
        }
    }

    /// Notes that the store has answered: the outage is over, and its sums can be sent.
    #[inline]
    pub(super) fn store_answered(&self) {
        if self.is_away.load(Ordering::Acquire) && self.is_away.swap(false, Ordering::AcqRel) {
            self.lock().end_outage();
        }
    }

    pub(super) fn counts(&self) -> PostCounts {
        let waiting = {
            let backlog = self.lock();
            backlog.open.len() + backlog.sealed.len()
        };
        PostCounts {
            posted_units: self.posted_units.load(Ordering::Relaxed),
            lost_units: self.lost_units.load(Ordering::Relaxed),
            waiting: waiting as u64,
        }
    }

    /// Sends some of the sums that wait. Returns at the first that the store does not answer.
    pub(super) async fn send(&self, store: &(impl Store + Sync), clock: &super::MonotonicClock) {
        if self.is_sending.swap(true, Ordering::AcqRel) {
            return;
        }
        let sending = Sending(&self.is_sending);
        self.lock().end_idle_outage(clock.now());
        for _ in 0..SENT_AT_ONCE {
            let Some(mut post) = self.lock().sealed.pop_front() else { break };
            let units = post.sum.units;
            match post.send(store, clock.now()).await {
                Sent::Booked(booked) => {
                    self.store_answered();
                    self.posted_units.fetch_add(booked, Ordering::Relaxed);
                    self.lost_units.fetch_add(units.saturating_sub(booked), Ordering::Relaxed);
                }
                Sent::Lost => {
                    self.lost_units.fetch_add(units, Ordering::Relaxed);
                }
                Sent::Later => {
                    self.lock().sealed.push_front(post);
                    break;
                }
            }
        }
        drop(sending);
    }

    /// Returns what was posted and lost since the last call, once the store is back and nothing waits any more.
    pub(super) fn report(&self) -> Option<PostCounts> {
        let counts = self.counts();
        if counts.waiting > 0 || self.is_away.load(Ordering::Acquire) {
            return None;
        }
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        let since = PostCounts {
            posted_units: counts.posted_units.saturating_sub(reported.posted_units),
            lost_units: counts.lost_units.saturating_sub(reported.lost_units),
            waiting: 0,
        };
        *reported = counts;
        (since != PostCounts::default()).then_some(since)
    }

    /// A backlog is valid after a panic: every change is one insertion or removal.
    fn lock(&self) -> MutexGuard<'_, Backlog> {
        self.backlog.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A key that no other process has.
fn process_key() -> [u8; 32] {
    let mut key = [0; 32];
    key[..16].copy_from_slice(&new_nonce().0.to_le_bytes());
    key
}

/// Ends the sending, also if the task is dropped.
struct Sending<'a>(&'a AtomicBool);

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Returns the units of an item that are to be posted, if a limiter in this process has admitted them.
fn owed(plan: &Plan<'_>, item: &Item<'_>, answer: &Answer) -> Option<u64> {
    let counts_for_long = matches!(item.limit, Limit::Quota(_) | Limit::Meter(_));
    let is_local = matches!(answer.by, AnsweredBy::Policy(PolicyKind::Local | PolicyKind::Cap));
    // The ledger has noted them. While a hash key is replaced, only the first of a rule's items has the mark.
    let is_recorded =
        || plan.items().iter().any(|other| other.rule_index == item.rule_index && other.ledger.is_some());
    match item.operation {
        Operation::Charge { cost, .. }
            if cost > 0 && counts_for_long && is_local && answer.is_admitted() && !is_recorded() =>
        {
            Some(cost)
        }
        _ => None,
    }
}

impl Backlog {
    /// Adds an admission at `at`. Returns whether there was room.
    fn add(&mut self, item: &Item<'_>, units: u64, at: Time, now: Instant) -> bool {
        let key = item.key.fingerprint();
        if self.open.get(&key).is_some_and(|sum| !sum.is_same_period(&item.limit, at)) {
            self.seal(key);
        }
        let is_full = self.open.len() + self.sealed.len() >= SUMS_MAX;
        match self.open.get_mut(&key) {
            Some(sum) => {
                sum.units = sum.units.saturating_add(units).min(tollgate_core::EXACT_MAX);
                sum.limit = item.limit;
                sum.last = sum.last.max(at);
            }
            None if is_full => return false,
            None => {
                let owner = Owner::of(&item.key);
                let Item { limit, ip_subjects_max, .. } = *item;
                self.open.insert(key, Sum { owner, limit, ip_subjects_max, units, first: at, last: at });
            }
        }
        self.last_noted = Some(now);
        true
    }

    /// Fixes the sum of a key, and names it by (server, outage, key).
    fn seal(&mut self, key: u128) {
        let Some(sum) = self.open.remove(&key) else { return };
        let name = format!("{} {key:x} {}", self.outage, sum.first.us());
        let id = self.server.subject([("local admissions", name.as_str())]);
        self.sealed.push_back(Post { sum, id, start: None, first_sent: None });
    }

    fn end_outage(&mut self) {
        let keys: Vec<u128> = self.open.keys().copied().collect();
        keys.into_iter().for_each(|key| self.seal(key));
        self.outage += 1;
    }

    /// Ends the outage if nothing has been admitted locally for a while: perhaps no check has come since the store is back.
    fn end_idle_outage(&mut self, now: Instant) {
        let is_idle = |last: Instant| now.saturating_duration_since(last) >= IDLE;
        if !self.open.is_empty() && self.last_noted.is_some_and(is_idle) {
            self.end_outage();
        }
    }
}

impl Sum {
    /// Whether an admission at `at` is in the period of this sum.
    fn is_same_period(&self, limit: &Limit, at: Time) -> bool {
        match (limit, &self.limit) {
            (Limit::Quota(limit), Limit::Quota(own)) => match (limit.period(), own.period()) {
                (QuotaPeriod::Calendar(periods), QuotaPeriod::Calendar(own)) => {
                    own.containing(self.first).is_some()
                        && own.containing(self.first) == periods.containing(at)
                }
                (QuotaPeriod::Rolling(length), QuotaPeriod::Rolling(own)) => {
                    length == own && self.first <= at && at < self.first.plus(length)
                }
                _ => false,
            },
            (Limit::Meter(_), Limit::Meter(_)) => true,
            _ => false,
        }
    }

    fn plan(&self, operation: Operation) -> Option<Plan<'_>> {
        let item = Item::new(self.owner.key(), self.limit, operation);
        let plan = Plan::of(Item { ip_subjects_max: self.ip_subjects_max, ..item });
        debug_assert!(plan.is_ok(), "a record is a valid Plan: {plan:?}");
        plan.ok()
    }

    /// Returns the start of the period in which the units count, `None` if it is another than that in the store.
    async fn start(&self, store: &impl Store) -> Result<Option<Time>, StoreError> {
        let length = match &self.limit {
            Limit::Quota(quota) => match quota.period() {
                QuotaPeriod::Calendar(periods) => {
                    return Ok(periods.containing(self.first).map(|(start, _)| start));
                }
                QuotaPeriod::Rolling(length) => length,
            },
            _ => return Ok(Some(Time::ZERO)),
        };
        // A rolling period starts with the first use, which the store may have seen before.
        let Some(plan) = self.plan(Operation::Usage) else { return Ok(None) };
        let outcome = store.apply(&plan).await?;
        let Some(answer) = outcome.answers.first() else { return Ok(None) };
        let Verdict::Usage { used, held } = answer.verdict else { return Ok(None) };
        if used == 0 && held == 0 {
            return Ok(Some(self.first));
        }
        let start = Time::from_us(answer.reset_at.us().saturating_sub(length.us()));
        Ok((start <= self.first && self.last < answer.reset_at).then_some(start))
    }
}

impl Post {
    async fn send(&mut self, store: &impl Store, now: Instant) -> Sent {
        let start = match self.start {
            Some(start) => start,
            None => match self.sum.start(store).await {
                Ok(Some(start)) => start,
                Ok(None) => return Sent::Lost,
                Err(error) => return self.later(&error, now),
            },
        };
        self.start = Some(start);
        let Some(mut plan) = self.sum.plan(Operation::RecordIn { cost: self.sum.units, start }) else {
            return Sent::Lost;
        };
        plan.set_request_id(self.id, HORIZON, 0);
        let sent = store.apply(&plan).await;
        drop(plan);
        self.first_sent.get_or_insert(now);
        match sent {
            Ok(outcome) => match outcome.answers.first().map(|answer| answer.verdict) {
                Some(Verdict::Recorded { amount, .. }) => Sent::Booked(amount),
                _ => Sent::Lost,
            },
            Err(error) => self.later(&error, now),
        }
    }

    /// What follows after an error: another attempt under the same id while the store remembers it for certain.
    fn later(&self, error: &StoreError, now: Instant) -> Sent {
        let is_expired =
            self.first_sent.is_some_and(|first| now.saturating_duration_since(first) >= REPEATED_MAX);
        let can_change = matches!(error, StoreError::Transient(_) | StoreError::Misconfigured(_));
        if can_change && !is_expired { Sent::Later } else { Sent::Lost }
    }
}

#[cfg(test)]
mod tests;
