//! What the store and the failure policies admitted, and the sums that must hold.

use std::collections::BTreeMap;

use tollgate_core::{Operation, Outcome, Plan, Time};

use super::network::StoreInstant;
use super::rules::SimulatedRule;
use crate::history::{CallResult, Checker, History, Record};

/// All admissions of a run.
#[derive(Default)]
pub(super) struct Ledger {
    /// In the order in which the store applied them.
    applied: Vec<Applied>,
    local: Vec<Local>,
    /// What clients were admitted under rules with slices.
    sliced: Vec<Sliced>,
    /// By key: what was booked after the fact, in order.
    posted: BTreeMap<u128, u64>,
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
    /// Whether the store had applied the Plan.
    pub(super) was_applied: bool,
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
                Operation::Record { cost } => *self.posted.entry(key).or_default() += cost,
                operation if charges(operation) && is_admitted => {
                    let cost = operation.cost().unwrap_or(0);
                    self.applied.push(Applied { rule, key, cost, at: outcome.now, is_lost: false });
                }
                _ => (),
            }
        }
    }

    /// Marks all admissions from number `first` on as lost. Returns how many they are.
    pub(super) fn lose_after(&mut self, first: usize) -> u64 {
        let lost = self.applied.iter_mut().skip(first).filter(|applied| !applied.is_lost);
        lost.map(|applied| applied.is_lost = true).count() as u64
    }

    pub(super) fn note_local(&mut self, admitted: impl IntoIterator<Item = Local>) {
        self.local.extend(admitted);
    }

    pub(super) fn note_sliced(&mut self, admitted: Sliced) {
        self.sliced.push(admitted);
    }

    /// Checks the sums. `is_one_time` says that all clocks showed the same time throughout.
    pub(super) fn check(&self, rules: &[SimulatedRule], is_one_time: bool) -> Result<(), String> {
        self.check_store(rules)?;
        self.check_slices(rules)?;
        if is_one_time {
            self.check_shares(rules)?;
        }
        self.check_posts()
    }

    /// The store admits no more than the limit, apart from what failovers lost (I13).
    fn check_store(&self, rules: &[SimulatedRule]) -> Result<(), String> {
        // Servers give units of slices back, so what was booked is not what was admitted.
        for rule in rules.iter().filter(|rule| !rule.has_slices()) {
            let limit = rule.limit().map_err(|error| error.to_string())?;
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
            let limit = rule.limit().map_err(|error| error.to_string())?;
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

    /// What is booked after an outage was admitted locally, and the store had not charged it before.
    fn check_posts(&self) -> Result<(), String> {
        for (key, posted) in &self.posted {
            let owed = self.local.iter().filter(|local| local.key == *key && !local.was_applied);
            let owed: u64 = owed.map(|local| local.cost).sum();
            if *posted > owed {
                return Err(format!("I14: {posted} was booked after the fact, but only {owed} was owed"));
            }
        }
        Ok(())
    }
}
