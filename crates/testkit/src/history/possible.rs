//! False refusals: the most that can have counted against a refusal, wherever in their intervals the charges and the
//! refusal took effect.

use tollgate_core::algorithm::bucket::Bucket;

use super::charge::Charge;

/// The time in which a possible charge can have counted: from `from` to just before `until`.
#[derive(Clone, Copy)]
pub(super) struct Active<'h> {
    pub(super) from: u64,
    pub(super) until: u64,
    pub(super) charge: Charge<'h>,
}

/// The maximum between any two instants of a quantity that rises only at known points.
pub(super) struct Peaks {
    points: Vec<u64>,
    /// A heap of maxima; the leaves are the values at the points.
    tree: Vec<u128>,
}

/// Returns each charge as active from its start until `until(end)`.
pub(super) fn active<'h>(possible: &[Charge<'h>], until: impl Fn(u64) -> u64) -> Vec<Active<'h>> {
    possible.iter().map(|&charge| Active { from: charge.start, until: until(charge.end), charge }).collect()
}

/// Returns charges on a log of `entries` entries. A record into a full log moves older charges to its own instant, so
/// they may be active until the window after it.
pub(super) fn active_in_log<'h>(possible: &[Charge<'h>], window_us: u64, entries: u64) -> Vec<Active<'h>> {
    let mut active = active(possible, |end| end.saturating_add(window_us));
    let may_be_full = possible.len() as u64 > entries;
    let mut records: Vec<Active<'h>> =
        active.iter().filter(|active| may_be_full && active.charge.is_record()).copied().collect();
    // In order of their ends, so that one pass finds chains of records.
    records.sort_unstable_by_key(|record| record.charge.end);
    for active in &mut active {
        for record in &records {
            if record.charge.end >= active.charge.start && record.from < active.until {
                active.until = active.until.max(record.until);
            }
        }
    }
    active
}

/// Returns charges on a meter, each active until the meter has certainly expired.
pub(super) fn active_in_life<'h>(possible: &[Charge<'h>], expiry_us: u64) -> Vec<Active<'h>> {
    let mut active = active(possible, |end| end.saturating_add(expiry_us));
    let mut first = 0;
    while first < active.len() {
        let (mut next, mut over) = (first, active[first].until);
        while next < active.len() && active[next].from < over {
            over = over.max(active[next].until);
            next += 1;
        }
        active[first..next].iter_mut().for_each(|active| active.until = over);
        first = next;
    }
    active
}

impl Peaks {
    /// Returns the sum of the active charges, weighted by `weight`.
    pub(super) fn of_sum(active: &[Active<'_>], weight: impl Fn(&Active<'_>) -> u64) -> Peaks {
        let mut events: Vec<(u64, bool, u64)> = active
            .iter()
            .filter(|active| active.from < active.until)
            .flat_map(|active| [(active.from, true, weight(active)), (active.until, false, weight(active))])
            .collect();
        events.sort_unstable();
        let mut sum: u128 = 0;
        let values = events.chunk_by(|a, b| a.0 == b.0).map(|together| {
            for &(_, comes, weight) in together {
                let weight = u128::from(weight);
                sum = if comes { sum + weight } else { sum - weight };
            }
            (together[0].0, sum)
        });
        Peaks::new(values.collect())
    }

    /// Returns the largest possible debt of a bucket, in whole units rounded up, over its ticks. Exact only between
    /// instants of which the first is one of `firsts`.
    ///
    /// Why this is the largest: a debt drains, so at `t` a charge counts most if it happened as late as possible, at its
    /// end, or at `t` itself if `t` is in its interval. Hence two parts: the debt of charges whose interval has ended,
    /// each placed at its end, and the full cost of the others. A real debt never exceeds the capacity, so the first part
    /// may be clamped to it each time. Records bring the debt above the capacity, so with records nothing is clamped.
    ///
    /// Proof by induction over time. Let `d` be the real debt, `g` the first part, and `q` the cost of real charges whose
    /// interval has not ended. Then `d <= g + q`:
    /// - draining reduces `d` by at least as much as `g`, unless `d` is zero;
    /// - a real charge adds the same to `d` and `q`;
    /// - the end of an interval moves a cost from `q` to `g`, and if `g` is then clamped to the capacity, `d` did not exceed
    ///   the capacity either.
    pub(super) fn of_debt(possible: &[Charge<'_>], bucket: &Bucket, firsts: &[u64]) -> Peaks {
        let tick = |at: u64| at / bucket.tick().us();
        let (drain, scale) = bucket.rate();
        let (drain, scale) = (u128::from(drain), u128::from(scale));
        let has_records = possible.iter().any(Charge::is_record);
        let ceiling = if has_records { u128::MAX } else { u128::from(bucket.capacity()) * scale };

        let mut points: Vec<u64> = possible.iter().map(|charge| tick(charge.start)).collect();
        points.extend(firsts.iter().map(|first| tick(*first)));
        points.sort_unstable();
        points.dedup();
        let mut ends: Vec<(u64, u128)> =
            possible.iter().map(|charge| (tick(charge.end), u128::from(charge.cost))).collect();
        ends.sort_unstable();

        let (mut started, mut ended) = (possible.iter().peekable(), ends.into_iter().peekable());
        let (mut debt, mut debt_at, mut pending): (u128, u64, u128) = (0, 0, 0);
        let drained = |debt: u128, since: u64, at: u64| debt.saturating_sub(u128::from(at - since) * drain);
        let values = points.into_iter().map(|point| {
            while let Some(charge) = started.next_if(|charge| tick(charge.start) <= point) {
                pending += u128::from(charge.cost);
            }
            while let Some((end, cost)) = ended.next_if(|(end, _)| *end < point) {
                pending -= cost;
                debt = drained(debt, debt_at, end).saturating_add(cost.saturating_mul(scale)).min(ceiling);
                debt_at = end;
            }
            (point, drained(debt, debt_at, point).div_ceil(scale) + pending)
        });
        Peaks::new(values.collect())
    }

    /// Creates it from points and their values, sorted by point.
    fn new(values: Vec<(u64, u128)>) -> Peaks {
        let (points, leaves): (Vec<u64>, Vec<u128>) = values.into_iter().unzip();
        let mut tree = vec![0; points.len()];
        tree.extend(leaves);
        for node in (1..points.len()).rev() {
            tree[node] = tree[2 * node].max(tree[2 * node + 1]);
        }
        Peaks { points, tree }
    }

    /// Returns the largest value from `first` to `last`, inclusive.
    pub(super) fn most(&self, first: u64, last: u64) -> u128 {
        // The value at the last point before `first` still applies at `first`.
        let from = self.points.partition_point(|point| *point <= first).saturating_sub(1);
        let to = self.points.partition_point(|point| *point <= last);
        let (mut from, mut to) = (from + self.points.len(), to + self.points.len());
        let mut most = 0;
        while from < to {
            if from % 2 == 1 {
                most = most.max(self.tree[from]);
                from += 1;
            }
            if to % 2 == 1 {
                to -= 1;
                most = most.max(self.tree[to]);
            }
            (from, to) = (from / 2, to / 2);
        }
        most
    }
}
