//! The guarantees of each algorithm, and the search for calls that break them.

use std::collections::BTreeMap;

use tollgate_core::algorithm::bucket::Bucket;
use tollgate_core::algorithm::fixed_window::FixedWindow;
use tollgate_core::algorithm::quota::{Quota, QuotaPeriod};
use tollgate_core::algorithm::sliding_log::SlidingLog;
use tollgate_core::algorithm::sliding_window::{Counting, SlidingWindow};
use tollgate_core::time::calendar::Periods;
use tollgate_core::{Limit, Span, Time};

use super::certain::{
    Found, Grid, Line, in_estimate, in_width, on_line, overfull_instants, overfull_lifetimes, within,
};
use super::charge::{Charge, Charges};
use super::possible::{Active, Peaks, active, active_in_life, active_in_log};
use super::rolling::RollingPeriods;
use super::verdict::{Unchecked, Verdict, Violation};
use super::{CallResult, History, Record, ids};

/// Default time for which a store remembers a request id.
pub const ID_HORIZON_DEFAULT: Span = Span::from_secs(60);

/// Largest number of records that a violation shows.
const EVIDENCE_MAX: usize = 8;
/// Number of violations per key for which evidence is collected. Each collection scans all charges of the key.
const EXPLAINED_MAX: usize = 100;

/// Checks histories against one limit.
#[derive(Clone, Copy, Debug)]
pub struct Checker {
    limit: Limit,
    id_horizon: Span,
}

impl Checker {
    /// Creates a checker for histories during which `limit` was in force on every key.
    pub const fn new(limit: Limit) -> Checker {
        Checker { limit, id_horizon: ID_HORIZON_DEFAULT }
    }

    /// Sets how long the store remembers a request id.
    pub const fn with_id_horizon(self, id_horizon: Span) -> Checker {
        Checker { id_horizon, ..self }
    }

    /// Checks a history.
    pub fn check(&self, history: &History) -> Verdict {
        let mut verdict = Verdict::default();
        let mut seen_ids: BTreeMap<u128, u64> = BTreeMap::new();
        for record in history.records() {
            verdict.counts.add(record.answer);
            if let Some(id) = record.id {
                *seen_ids.entry(id).or_default() += 1;
            }
        }
        verdict.counts.repeated = seen_ids.values().map(|count| count - 1).sum();

        let well_formed = |record: &&Record| record.start <= record.end;
        verdict.id_conflicts = ids::conflicts(history.records().iter().filter(well_formed), self.id_horizon);
        for (key, mut calls) in history.by_key() {
            verdict.counts.keys += 1;
            calls.retain(|call| match self.unchecked(call) {
                Some(why) => {
                    *verdict.unchecked.entry(why).or_default() += 1;
                    // A record that may be outside the periods may also be inside, so it can still justify a refusal.
                    why == Unchecked::OutsidePeriods && call.answer.may_charge()
                }
                None => true,
            });
            KeyCheck::new(key, &calls, self.id_horizon).check(&self.limit, &mut verdict);
        }
        verdict
    }

    fn unchecked(&self, call: &Record) -> Option<Unchecked> {
        if call.end < call.start {
            return Some(Unchecked::EndBeforeStart);
        }
        match self.limit {
            Limit::Penalty(_) => Some(Unchecked::Penalty),
            Limit::Quota(quota) => match quota.period() {
                QuotaPeriod::Calendar(periods) if !covers(&periods, call.start, call.end) => {
                    Some(Unchecked::OutsidePeriods)
                }
                _ => None,
            },
            _ => None,
        }
    }
}

fn covers(periods: &Periods, start: Time, end: Time) -> bool {
    periods.containing(start).is_some() && periods.containing(end).is_some()
}

/// The calls on one key.
struct KeyCheck<'h> {
    key: &'h str,
    charges: Charges<'h>,
    refusals: Vec<&'h Record>,
    credits: Vec<&'h Record>,
}

impl<'h> KeyCheck<'h> {
    fn new(key: &'h str, calls: &[&'h Record], id_horizon: Span) -> KeyCheck<'h> {
        let answered = |answer| calls.iter().copied().filter(move |call| call.answer == answer).collect();
        let (refusals, credits) = (answered(CallResult::Refuse), answered(CallResult::Credited));
        KeyCheck { key, charges: Charges::of(calls, id_horizon), refusals, credits }
    }

    /// Returns what may have been credited by this instant.
    fn credited_by(&self, last: u64) -> u128 {
        let credits = self.credits.iter().filter(|credit| credit.start.us() <= last);
        credits.map(|credit| u128::from(credit.cost)).sum()
    }

    fn check(&self, limit: &Limit, verdict: &mut Verdict) {
        match limit {
            Limit::FixedWindow(limit) => self.fixed_window(limit, verdict),
            Limit::SlidingWindow(limit) => match limit.counting() {
                Counting::Strict => self.strict(limit, verdict),
                Counting::Interpolated => self.interpolated(limit, verdict),
            },
            Limit::SlidingLog(limit) => self.sliding_log(limit, verdict),
            Limit::Bucket(limit) => self.bucket(limit, verdict),
            Limit::Concurrency(limit) => self.concurrency(limit.limit(), verdict),
            Limit::Quota(limit) => self.quota(limit, verdict),
            Limit::Meter(limit) => {
                let (most, expiry) = (limit.limit(), limit.expiry().us());
                let promise = format!("at most {most} until it is left alone for {}", limit.expiry());
                let found = overfull_lifetimes(&self.charges.certain, expiry, most.into());
                self.over_admitted(found, &promise, verdict);
                let active = active_in_life(&self.charges.possible, expiry);
                self.falsely_refused(&active, most, &promise, sum(&active), verdict);
            }
            Limit::Penalty(_) => {}
        }
    }

    fn fixed_window(&self, limit: &FixedWindow, verdict: &mut Verdict) {
        let (most, window) = (limit.limit(), limit.window());
        let promise = format!("at most {most} in each aligned window of {window}");
        // n consecutive windows are one window and n - 1 more of the same.
        let line = Line { burst: most, drain: most, scale: 1 };
        let found = on_line(&self.charges.certain, Grid::Even(window.us()), line);
        self.over_admitted(found, &promise, verdict);
        let active =
            active(&self.charges.possible, |end| Time::from_us(end).floor(window).us() + window.us());
        self.falsely_refused(&active, most, &promise, sum(&active), verdict);
    }

    fn sliding_log(&self, limit: &SlidingLog, verdict: &mut Verdict) {
        let (most, window) = (limit.limit(), limit.window());
        self.any_window(most, window, most.into(), verdict);
        let promise = format!("refuses only above {most} in the last {window}");
        let active = active_in_log(&self.charges.possible, window.us(), limit.entries());
        let (costs, entries) = (sum(&active), Peaks::of_sum(&active, |_| 1));
        let counted = |refusal: &Record| {
            // A full log also justifies a refusal, whatever the cost.
            let full = entries.most(refusal.start.us(), refusal.end.us()) >= limit.entries().into();
            if full { most.into() } else { costs(refusal) }
        };
        self.falsely_refused(&active, most, &promise, counted, verdict);
    }

    fn strict(&self, limit: &SlidingWindow, verdict: &mut Verdict) {
        let (most, window) = (limit.limit(), limit.window());
        self.any_window(most, window, most.into(), verdict);
        let longer = Span::from_us(window.us() + window.us() / limit.buckets());
        let promise =
            format!("refuses only above {most} in the last {longer}, a bucket more than the window");
        let active = active(&self.charges.possible, |end| end + longer.us());
        self.falsely_refused(&active, most, &promise, sum(&active), verdict);
    }

    fn interpolated(&self, limit: &SlidingWindow, verdict: &mut Verdict) {
        let (most, window, buckets) = (limit.limit(), limit.window(), limit.buckets());
        let bucket = Span::from_us(window.us() / buckets);
        let certain = &self.charges.certain;
        let estimate =
            format!("the newest {buckets} buckets and the oldest by its overlap are at most {most}");
        let mut found = in_estimate(certain, limit);
        let mut promise = estimate.clone();
        if found.is_empty() {
            // Each admission found the newest buckets, including itself, at or below the limit.
            promise = format!("at most {most} in any {buckets} aligned buckets of {bucket}");
            found = in_width(certain, Grid::Even(bucket.us()), buckets, most.into());
        }
        if found.is_empty() {
            self.any_window(most, window, 2 * u128::from(most) - 1, verdict);
        } else {
            self.over_admitted(found, &promise, verdict);
        }

        // A charge counts in full while its bucket is among the newest, and then by its overlap. The effective instant
        // never goes back to an older bucket, but may go back within one. So in the first bucket of the refusal's
        // interval the overlap is that of its start, and in later buckets it can be full.
        let possible = &self.charges.possible;
        let end_of_bucket = |at: u64| Time::from_us(at).floor(bucket).us() + bucket.us();
        let newest = active(possible, |end| end_of_bucket(end) + window.us() - bucket.us());
        let all = active(possible, |end| end_of_bucket(end) + window.us());
        let mut oldest: BTreeMap<u64, u128> = BTreeMap::new();
        for active in &all {
            *oldest.entry(active.until).or_default() += u128::from(active.charge.cost);
        }
        let (newest, full) = (Peaks::of_sum(&newest, cost), Peaks::of_sum(&all, cost));
        let ticks = u128::from(bucket.us() / limit.tick().us());
        let counted = |refusal: &Record| {
            let (start, end) = (refusal.start.us(), refusal.end.us());
            let next = end_of_bucket(start);
            let left = ticks - u128::from((start + bucket.us() - next) / limit.tick().us());
            let overlap = oldest.get(&next).copied().unwrap_or(0).saturating_mul(left).div_ceil(ticks);
            let in_first = newest.most(start, end.min(next - 1)) + overlap;
            let in_later = if end >= next { full.most(next, end) } else { 0 };
            in_first.max(in_later)
        };
        self.falsely_refused(&all, most, &estimate, counted, verdict);
    }

    /// Checks for at most `bound` in any span of `window`. If that holds, also checks longer spans against what follows
    /// from a limit of `most` per window.
    fn any_window(&self, most: u64, window: Span, bound: u128, verdict: &mut Verdict) {
        let (certain, grid) = (&self.charges.certain, Grid::Even(1));
        let found = in_width(certain, grid, window.us(), bound);
        if !found.is_empty() {
            return self.over_admitted(found, &format!("at most {bound} in any {window}"), verdict);
        }
        // A span of D ticks fits into floor((D - 1) / W) + 1 windows. If only aligned buckets obey the limit, it can
        // touch one more window.
        let burst = if bound > most.into() { 2 * most } else { most };
        let found = on_line(certain, grid, Line { burst, drain: most, scale: window.us() });
        let promise = format!("at most {burst} and what {most} per {window} adds to it in any longer span");
        self.over_admitted(found, &promise, verdict);
    }

    fn bucket(&self, limit: &Bucket, verdict: &mut Verdict) {
        let (drain, scale) = limit.rate();
        let (capacity, tick) = (limit.capacity(), limit.tick());
        let tick_span = Span::from_us(tick.us());
        let promise =
            format!("at most {capacity} and {drain}/{scale} for each further {tick_span} of any span");
        let line = Line { burst: capacity, drain, scale };
        let found = on_line(&self.charges.certain, Grid::Even(tick.us()), line);
        self.over_admitted(found, &promise, verdict);

        let fill_us = limit.fill_time().us();
        let possible = &self.charges.possible;
        let active = active(possible, |end| end + fill_us + tick.us());
        let firsts: Vec<u64> = self.refusals.iter().map(|refusal| refusal.start.us()).collect();
        let debts = Peaks::of_debt(possible, limit, &firsts);
        let counted =
            |refusal: &Record| debts.most(refusal.start.us() / tick.us(), refusal.end.us() / tick.us());
        self.falsely_refused(&active, capacity, &promise, counted, verdict);
    }

    fn concurrency(&self, most: u64, verdict: &mut Verdict) {
        let promise = format!("at most {most} held at once");
        let held = |charge: &Charge<'h>| charge.held.map(|held| (held.from.us(), held.until.us()));
        let stays = self.charges.certain.iter().filter_map(|charge| {
            let (from, until) = held(charge)?;
            Some((from, until, charge.cost))
        });
        for (index, (at, sum)) in overfull_instants(stays, most.into()).into_iter().enumerate() {
            let found = Found { first: at, last: at, sum, bound: most.into() };
            let certain = if index < EXPLAINED_MAX { self.charges.certain.as_slice() } else { &[] };
            let holders = certain
                .iter()
                .filter(|charge| held(charge).is_some_and(|(from, until)| from <= at && at < until));
            verdict.over_admitted.push(self.violation(&found, &promise, None, holders));
        }
        let active = self.charges.possible.iter().map(|&charge| {
            let until = charge.held.map_or(u64::MAX, |held| held.gone.us());
            Active { from: charge.start, until, charge }
        });
        let active: Vec<Active<'h>> = active.collect();
        self.falsely_refused(&active, most, &promise, sum(&active), verdict);
    }

    fn quota(&self, limit: &Quota, verdict: &mut Verdict) {
        let most = limit.allowance() + limit.grace();
        match limit.period() {
            QuotaPeriod::Calendar(periods) => {
                let promise = format!("at most {most} in each period, grace included");
                let starts = periods.starts().map(Time::us);
                let inside = |charge: &&Charge<'h>| {
                    covers(&periods, Time::from_us(charge.start), Time::from_us(charge.end))
                };
                let certain: Vec<Charge<'h>> = self.charges.certain.iter().filter(inside).copied().collect();
                let line = Line { burst: most, drain: most, scale: 1 };
                let found = on_line(&certain, Grid::Periods(starts), line);
                self.over_admitted(found, &promise, verdict);
                // Everything before the first known period has expired when that period begins.
                let active = active(&self.charges.possible, |end| {
                    starts.into_iter().find(|start| *start > end).unwrap_or(u64::MAX)
                });
                self.falsely_refused(&active, most, &promise, sum(&active), verdict);
            }
            QuotaPeriod::Rolling(length) => {
                let promise = format!("at most {most} in {length} from the first use, grace included");
                let certain = &self.charges.certain;
                let rolling = RollingPeriods::of(&self.charges, length.us());
                let mut found = rolling.overfull_periods(certain, most.into());
                // A span of D ticks touches at most floor((D - 1) / length) + 2 periods.
                if found.is_empty() {
                    found = in_width(certain, Grid::Even(1), length.us(), 2 * u128::from(most));
                }
                if found.is_empty() {
                    let line = Line { burst: 2 * most, drain: most, scale: length.us() };
                    found = on_line(certain, Grid::Even(1), line);
                }
                self.over_admitted(found, &promise, verdict);
                let active = active(&self.charges.possible, |end| rolling.over_by(end));
                self.falsely_refused(&active, most, &promise, sum(&active), verdict);
            }
        }
    }

    fn over_admitted(&self, found: Vec<Found>, promise: &str, verdict: &mut Verdict) {
        let is_proof = |found: &&Found| found.sum > found.bound + self.credited_by(found.last);
        let violations = found.iter().filter(is_proof).map(|found| {
            let charges = within(&self.charges.certain, found.first, found.last);
            self.violation(found, promise, None, charges)
        });
        verdict.over_admitted.extend(violations);
    }

    /// Reports the refusals for which there was room below `capacity`. `most` returns the most that can have counted
    /// against a refusal.
    fn falsely_refused(
        &self,
        active: &[Active<'h>],
        capacity: u64,
        promise: &str,
        counted: impl Fn(&Record) -> u128,
        verdict: &mut Verdict,
    ) {
        let mut explained = 0;
        for refusal in &self.refusals {
            // A refusal of cost 0 means that there was no room for cost 1.
            let sum = counted(refusal).saturating_add(refusal.cost.max(1).into());
            let bound = u128::from(capacity);
            if sum > bound {
                continue;
            }
            explained += 1;
            let (first, last) = (refusal.start.us(), refusal.end.us());
            let active = if explained <= EXPLAINED_MAX { active } else { &[] };
            let counted = active.iter().filter(|active| active.from <= last && first < active.until);
            let found = Found { first, last, sum, bound };
            let charges = counted.map(|active| &active.charge);
            verdict.falsely_refused.push(self.violation(&found, promise, Some(refusal), charges));
        }
    }

    fn violation<'c>(
        &self,
        found: &Found,
        promise: &str,
        refused: Option<&Record>,
        mut charges: impl Iterator<Item = &'c Charge<'h>>,
    ) -> Violation
    where
        'h: 'c,
    {
        let evidence = charges.by_ref().take(EVIDENCE_MAX).map(|charge| charge.record.clone()).collect();
        Violation {
            key: self.key.to_owned(),
            promise: promise.to_owned(),
            first: Time::from_us(found.first),
            last: Time::from_us(found.last),
            sum: found.sum,
            bound: found.bound,
            refused: refused.cloned(),
            evidence,
            evidence_left_out: charges.count(),
        }
    }
}

fn cost(active: &Active<'_>) -> u64 {
    active.charge.cost
}

/// Returns the most that can have counted against a refusal if everything active counts in full.
fn sum(active: &[Active<'_>]) -> impl Fn(&Record) -> u128 + use<> {
    let peaks = Peaks::of_sum(active, cost);
    move |refusal| peaks.most(refusal.start.us(), refusal.end.us())
}
