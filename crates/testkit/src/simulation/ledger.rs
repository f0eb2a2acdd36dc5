//! What the store and the failure policies admitted, and the sums that must hold.

use std::collections::BTreeMap;

use tollgate_core::{Mark, Operation, Outcome, Plan, Time, Verdict};

use super::network::StoreInstant;
use super::rules::{Lasting, SimulatedRule};
use crate::history::{CallResult, Checker, History, Record};

/// All admissions of a run.
#[derive(Default)]
pub(super) struct Ledger {
    /// In the order in which the store applied them.
    applied: Vec<Applied>,
    local: Vec<Local>,
    /// What clients were admitted under rules with slices.
    sliced: Vec<Sliced>,
    /// What was booked after the fact, in the order in which the store applied it.
    posted: Vec<Posted>,
    /// How many of them the replica has.
    posted_replicated: usize,
}

/// What was booked after the fact.
struct Posted {
    key: u128,
    cost: u64,
    /// The start of the period in which it was booked.
    start: Time,
    /// Whether a failover has lost it.
    is_lost: bool,
}

struct Applied {
    rule: String,
    key: u128,
    cost: u64,
    at: Time,
    /// Whether a failover has lost it.
    is_lost: bool,
}

/// An admission under a rule with slices, by the store or from a part of the limit.
#[derive(Clone, Debug)]
pub(super) struct Sliced {
    pub(super) rule: String,
    pub(super) user: &'static str,
    pub(super) cost: u64,
    pub(super) instant: StoreInstant,
}

/// An admission of an item by a failure policy.
#[derive(Clone, Debug)]
pub(super) struct Local {
    pub(super) rule: String,
    /// The key in the store.
    pub(super) key: u128,
    /// The server and how often it had been started.
    pub(super) process: (usize, u32),
    pub(super) cost: u64,
    /// On the server's clock.
    pub(super) at: Time,
    /// Whether the server knew that the store had not applied the Plan.
    pub(super) is_certain: bool,
}

impl Ledger {
    pub(super) fn len(&self) -> usize {
        self.applied.len()
    }

    /// Notes what the store did with a Plan.
    pub(super) fn note_applied(&mut self, plan: &Plan<'_>, outcome: &Outcome) {
        let charges = |operation| matches!(operation, Operation::Charge { .. });
        let is_admitted = outcome.answers.iter().all(|answer| answer.is_admitted());
        for item in plan.items() {
            let (rule, key) = (item.key.keyspace().rule().to_owned(), item.key.fingerprint());
            match item.operation {
                Operation::Record { cost } | Operation::RecordIn { cost, .. } if !outcome.replayed => {
                    let start = match outcome.answers.first().map(|answer| (answer.verdict, answer.mark)) {
                        Some((Verdict::Recorded { .. }, Mark::Window { start })) => start,
                        Some((Verdict::Recorded { .. }, _)) => Time::ZERO,
                        _ => continue,
                    };
                    self.posted.push(Posted { key, cost, start, is_lost: false });
                }
                operation if charges(operation) && is_admitted => {
                    let cost = operation.cost().unwrap_or(0);
                    self.applied.push(Applied { rule, key, cost, at: outcome.now, is_lost: false });
                }
                _ => (),
            }
        }
    }

    /// Notes that the replica has everything.
    pub(super) fn replicate(&mut self) {
        self.posted_replicated = self.posted.len();
    }

    /// The units that were booked after the fact.
    pub(super) fn posted_units(&self) -> u64 {
        self.posted.iter().map(|posted| posted.cost).sum()
    }

    /// Marks all admissions from number `first` on as lost. Returns how many they are.
    pub(super) fn lose_after(&mut self, first: usize) -> u64 {
        self.posted[self.posted_replicated..].iter_mut().for_each(|posted| posted.is_lost = true);
        self.posted_replicated = self.posted.len();
        let lost = self.applied.iter_mut().skip(first).filter(|applied| !applied.is_lost);
        lost.map(|applied| applied.is_lost = true).count() as u64
    }

    pub(super) fn note_local(&mut self, admitted: impl IntoIterator<Item = Local>) {
        self.local.extend(admitted);
    }

    pub(super) fn note_sliced(&mut self, admitted: Sliced) {
        self.sliced.push(admitted);
    }

    /// Checks the sums. `one_time` is the time now, if all clocks showed the same time throughout. `starts` says how often
    /// the process of each server was started before.
    pub(super) fn check(
        &self,
        rules: &[SimulatedRule],
        one_time: Option<Time>,
        starts: &[u32],
    ) -> Result<(), String> {
        self.check_store(rules)?;
        self.check_slices(rules)?;
        self.check_posts(rules)?;
        let Some(now) = one_time else { return Ok(()) };
        self.check_shares(rules)?;
        self.check_quotas(rules)?;
        self.check_nothing_forgotten(rules, now, starts)
    }

    /// The store admits no more than the limit, apart from what failovers lost (I13).
    fn check_store(&self, rules: &[SimulatedRule]) -> Result<(), String> {
        // Servers give units of slices back, so what was booked is not what was admitted.
        for rule in rules.iter().filter(|rule| !rule.has_slices()) {
            let Some(limit) = rule.limit() else { continue };
            let limit = limit.map_err(|error| error.to_string())?;
            let mut history = History::new();
            // A clock that steps back counts as standing still.
            let mut latest: BTreeMap<u128, Time> = BTreeMap::new();
            for applied in self.applied.iter().filter(|applied| applied.rule == rule.id && !applied.is_lost) {
                let at = latest.entry(applied.key).or_insert(applied.at);
                *at = applied.at.max(*at);
                let key = format!("{:x}", applied.key);
                history.push(Record::new(key, applied.cost, CallResult::Allow, *at, *at));
            }
            let verdict = Checker::new(limit).check(&history);
            if !verdict.over_admitted.is_empty() {
                return Err(format!("I13: the store admitted too much under {}: {verdict}", rule.id));
            }
        }
        Ok(())
    }

    /// What clients were admitted stays within the limit, whichever servers hold parts of it (I12). Between two failovers, because
    /// each may lose bookings.
    fn check_slices(&self, rules: &[SimulatedRule]) -> Result<(), String> {
        for rule in rules.iter().filter(|rule| rule.has_slices()) {
            let Some(limit) = rule.limit() else { continue };
            let limit = limit.map_err(|error| error.to_string())?;
            let mut history = History::new();
            for Sliced { user, cost, instant, .. } in
                self.sliced.iter().filter(|sliced| sliced.rule == rule.id)
            {
                let key = format!("{user} after {} failovers", instant.failovers);
                history.push(Record::new(key, *cost, CallResult::Allow, instant.at, instant.at));
            }
            let verdict = Checker::new(limit).check(&history);
            if !verdict.over_admitted.is_empty() {
                return Err(format!("I12: slices of {} admitted too much: {verdict}", rule.id));
            }
        }
        Ok(())
    }

    /// Per process start, key and window at most one share is admitted locally (I14).
    fn check_shares(&self, rules: &[SimulatedRule]) -> Result<(), String> {
        for rule in rules {
            let Some((capacity, window_us)) = rule.window_share() else { continue };
            let mut sums: BTreeMap<_, u64> = BTreeMap::new();
            for local in self.local.iter().filter(|local| local.rule == rule.id) {
                *sums.entry((local.process, local.key, local.at.us() / window_us)).or_default() += local.cost;
            }
            if let Some(((process, _, window), sum)) = sums.into_iter().find(|(_, sum)| *sum > capacity) {
                return Err(format!(
                    "I14: process {process:?} admitted {sum} of its share {capacity} of {} in window {window}",
                    rule.id
                ));
            }
        }
        Ok(())
    }

    /// No hour gets more than its quota from the store.
    fn check_quotas(&self, rules: &[SimulatedRule]) -> Result<(), String> {
        for rule in rules {
            let Some(quota) = rule.hourly() else { continue };
            let mut sums: BTreeMap<_, u64> = BTreeMap::new();
            for applied in self.applied.iter().filter(|applied| applied.rule == rule.id && !applied.is_lost) {
                *sums.entry((applied.key, hour(applied.at))).or_default() += applied.cost;
            }
            if let Some((_, sum)) = sums.into_iter().find(|(_, sum)| *sum > quota) {
                return Err(format!("I13: the store admitted {sum} of {quota} under {}", rule.id));
            }
        }
        Ok(())
    }

    /// What is booked after an outage was admitted locally in the same period, and the server knew that the store had not
    /// charged it.
    fn check_posts(&self, rules: &[SimulatedRule]) -> Result<(), String> {
        let mut sums: BTreeMap<_, u64> = BTreeMap::new();
        for posted in self.posted.iter().filter(|posted| !posted.is_lost) {
            *sums.entry((posted.key, posted.start)).or_default() += posted.cost;
        }
        for ((key, start), posted) in sums {
            let is_owed = |local: &&Local| {
                let rule = rules.iter().find(|rule| rule.id == local.rule);
                let counts = match rule.and_then(SimulatedRule::lasting) {
                    Some(Lasting::Hour) => hour(local.at) == hour(start),
                    Some(Lasting::FromFirstUse(span)) => start <= local.at && local.at < start.plus(span),
                    Some(Lasting::Always) => true,
                    None => false,
                };
                local.key == key && local.is_certain && counts
            };
            let owed: u64 = self.local.iter().filter(is_owed).map(|local| local.cost).sum();
            if posted > owed {
                return Err(format!(
                    "I14: {posted} was booked after the fact in the period from {start:?}, but only {owed} was owed"
                ));
            }
        }
        Ok(())
    }

    /// What the processes that still run have admitted locally, and what still counts, was booked.
    fn check_nothing_forgotten(
        &self,
        rules: &[SimulatedRule],
        now: Time,
        starts: &[u32],
    ) -> Result<(), String> {
        let mut owed: BTreeMap<u128, u64> = BTreeMap::new();
        for local in self.local.iter().filter(|local| local.is_certain) {
            let rule = rules.iter().find(|rule| rule.id == local.rule);
            let counts = match rule.and_then(SimulatedRule::lasting) {
                Some(Lasting::Hour) => hour(local.at) == hour(now),
                Some(Lasting::Always) => true,
                // Another process may have begun the period later.
                Some(Lasting::FromFirstUse(_)) | None => false,
            };
            let (server, started) = local.process;
            if counts && starts.get(server) == Some(&started) {
                *owed.entry(local.key).or_default() += local.cost;
            }
        }
        for (key, owed) in owed {
            let posted: u64 =
                self.posted.iter().filter(|posted| posted.key == key).map(|posted| posted.cost).sum();
            if posted < owed {
                return Err(format!(
                    "the return: {owed} was admitted without the store, and {posted} was booked"
                ));
            }
        }
        Ok(())
    }
}

/// The calendar hour of an instant.
const fn hour(at: Time) -> u64 {
    at.us() / 3_600_000_000
}
