//! The naive ledger: what every journaled answer should amount to.

use std::collections::{BTreeMap, BTreeSet};

use super::model::{Ask, Call, Name, Reply};

/// Sums by name, without order, batches or cursors.
#[derive(Default)]
pub(super) struct Books {
    /// Answers that the caller got.
    acknowledged: BTreeMap<Name, i64>,
    /// Charges in some journal that were not undone.
    charged: BTreeMap<Name, i64>,
    /// Charges that were undone: how often, and their cost.
    voided: BTreeMap<Name, (u32, i64)>,
    settled: BTreeMap<Name, i64>,
    /// By receipt: units charged, and units that answers gave back, by the time of the answer.
    refunded: BTreeMap<Name, (i64, BTreeMap<i64, i64>)>,
}

impl Books {
    /// Notes an answer that the caller got before it is recorded: only a mutant does that.
    pub(super) fn acknowledge(&mut self, call: &Call) {
        if matches!(call.ask, Ask::Charge | Ask::Settle) {
            self.acknowledged.insert(call.name, call.cost);
        }
    }

    /// Notes that an answer is in a journal and that its caller got it.
    pub(super) fn record(&mut self, call: &Call, reply: &Reply) {
        self.acknowledge(call);
        match call.ask {
            Ask::Charge => drop(self.charged.insert(call.name, call.cost)),
            Ask::Settle => drop(self.settled.insert(call.name, reply.amount)),
            Ask::Refund => {
                let refunded = self.refunded.entry(call.name).or_insert((call.cost, BTreeMap::new()));
                refunded.1.insert(reply.at_us, reply.amount);
            }
            Ask::Reserve | Ask::Cancel => (),
        }
    }

    /// Notes that an answer was journaled, undone, and never given.
    pub(super) fn void(&mut self, call: &Call) {
        let voided = self.voided.entry(call.name).or_insert((0, call.cost));
        voided.0 += 1;
    }

    /// Units that callers were granted.
    pub(super) fn granted(&self) -> i64 {
        self.acknowledged.values().sum()
    }

    /// Units that were given back, of each charge at most what it was.
    pub(super) fn refunded(&self) -> i64 {
        self.refunded.values().map(|(charged, sums)| sums.values().sum::<i64>().min(*charged)).sum()
    }

    /// Checks the units that the charges under one request id have used.
    pub(super) fn check_request(&self, names: &[Name], posted: i64) -> Result<(), String> {
        let least: i64 = names.iter().filter_map(|name| self.charged.get(name)).sum();
        let undone = names.iter().filter(|name| !self.charged.contains_key(name));
        let undone = undone.filter_map(|name| self.voided.get(name)).filter(|(times, _)| *times > 1);
        let most = least + undone.map(|(_, cost)| cost).sum::<i64>();
        match (least..=most).contains(&posted) {
            true => Ok(()),
            false => Err(format!("posted {posted} for {names:?}, the naive ledger has {least} to {most}")),
        }
    }

    /// Checks the units used by the ledger.
    pub(super) fn check(&self, posted: i64) -> Result<(), String> {
        let recorded = |name: &Name| self.charged.contains_key(name) || self.settled.contains_key(name);
        let missing: BTreeSet<_> = self.acknowledged.keys().filter(|name| !recorded(name)).collect();
        if !missing.is_empty() {
            return Err(format!("acknowledged and not recorded: {missing:?}"));
        }
        let least = self.charged.values().sum::<i64>() + self.settled.values().sum::<i64>() - self.refunded();
        // Two answers under one id that both were undone: neither void may take back what the other answer relies on.
        let undone_twice = self.voided.iter().filter(|(name, (times, _))| *times > 1 && !recorded(name));
        let most = least + undone_twice.map(|(_, (_, cost))| cost).sum::<i64>();
        match (least..=most).contains(&posted) {
            true => Ok(()),
            false => Err(format!("posted {posted}, the naive ledger has {least} to {most}")),
        }
    }
}
