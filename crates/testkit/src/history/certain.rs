//! Over-admission: searches for spans into which more cost certainly fell than was promised for them.
//!
//! A charge is counted in a span only if its whole interval lies inside. Then it happened inside wherever it
//! happened, so the real cost of the span is at least the sum found here: a sum above the bound refutes the
//! promise, whatever the real instants were.

use std::collections::BTreeMap;

use tollgate_core::algorithm::sliding_window::SlidingWindow;

use super::charge::Charge;

/// A span that holds too much.
#[derive(Clone, Copy)]
pub(super) struct Found {
    /// Its first instant.
    pub(super) first: u64,
    /// Its last instant.
    pub(super) last: u64,
    /// What it certainly holds.
    pub(super) sum: u128,
    /// What it may hold.
    pub(super) bound: u128,
}

/// Time cut into cells; a limit cannot tell instants of one cell apart.
#[derive(Clone, Copy)]
pub(super) enum Grid {
    /// Cells of this many microseconds, counted from 1970.
    Even(u64),
    /// Three calendar periods, from the first instant of each to the first instant after all.
    Periods([u64; 4]),
}

/// A promise for every number of cells: at most `burst + floor((n - 1) * drain / scale)` in any `n` in a row.
#[derive(Clone, Copy)]
pub(super) struct Line {
    pub(super) burst: u64,
    pub(super) drain: u64,
    pub(super) scale: u64,
}

impl Grid {
    /// The cell that holds an instant.
    pub(super) fn cell(&self, at: u64) -> u64 {
        match self {
            Grid::Even(unit) => at / unit,
            Grid::Periods(starts) => starts.partition_point(|start| *start <= at).saturating_sub(1) as u64,
        }
    }

    /// The first instant of a cell.
    fn first(&self, cell: u64) -> u64 {
        match self {
            Grid::Even(unit) => cell.saturating_mul(*unit),
            Grid::Periods(starts) => starts[(cell as usize).min(starts.len() - 1)],
        }
    }

    /// The last instant of a cell.
    fn last(&self, cell: u64) -> u64 {
        self.first(cell.saturating_add(1)).saturating_sub(1)
    }
}

impl Line {
    fn bound(&self, first: u64, last: u64) -> u128 {
        u128::from(self.burst) + u128::from(last - first) * u128::from(self.drain) / u128::from(self.scale)
    }
}

/// Spans of any number of cells that break the promise; of spans that overlap in one stretch of trouble, the
/// worst.
///
/// The sum of a span is a whole number, so `sum <= burst + floor(drain * (y - x) / scale)` for the span from
/// cell `x` to cell `y` says the same as `scale * sum + drain * x <= scale * burst + drain * y`. The sweep
/// goes through the ends `y` in order and keeps the left side for every start `x` in a tree, so that all
/// pairs are compared in `n log n` steps.
pub(super) fn on_line(charges: &[Charge<'_>], grid: Grid, line: Line) -> Vec<Found> {
    let drain = i128::from(line.drain);
    let scaled = |amount: u64| i128::from(amount).saturating_mul(i128::from(line.scale));

    let mut starts: Vec<u64> = charges.iter().map(|charge| grid.cell(charge.start)).collect();
    starts.sort_unstable();
    starts.dedup();
    let mut by_end: Vec<(u64, u64, u64)> =
        charges.iter().map(|charge| (grid.cell(charge.end), grid.cell(charge.start), charge.cost)).collect();
    by_end.sort_unstable();

    let mut spans = StartTree::new(starts.len());
    let mut opened = 0;
    let mut worst = Runs::default();
    for same_end in by_end.chunk_by(|a, b| a.0 == b.0) {
        let last = same_end[0].0;
        // Starts after this end are not the start of any span yet.
        while let Some(&first) = starts.get(opened).filter(|first| **first <= last) {
            spans.open(opened, drain * i128::from(first));
            opened += 1;
        }
        for &(_, first, cost) in same_end {
            spans.add(starts.partition_point(|start| *start < first), scaled(cost));
        }
        let (most, at) = spans.most();
        let excess = most.saturating_sub(scaled(line.burst)).saturating_sub(drain * i128::from(last));
        worst.see(excess, (starts[at], last));
    }
    let found = worst.close().into_iter().map(|(first_cell, last_cell)| {
        let (first, last) = (grid.first(first_cell), grid.last(last_cell));
        let sum = within(charges, first, last).map(|charge| u128::from(charge.cost)).sum();
        Found { first, last, sum, bound: line.bound(first_cell, last_cell) }
    });
    found.collect()
}

/// Spans of `width` cells that hold more than `bound`; of spans that overlap in one stretch of trouble, the
/// worst.
pub(super) fn in_width(charges: &[Charge<'_>], grid: Grid, width: u64, bound: u128) -> Vec<Found> {
    // The span that ends in cell y holds the charge from the cell of its end on, until the span's start has
    // passed the cell of its start.
    let stays = charges.iter().map(|charge| {
        let (start, end) = (grid.cell(charge.start), grid.cell(charge.end));
        (end, start.saturating_add(width), charge.cost)
    });
    let found = crowds(stays, bound).into_iter().map(|(cell, sum)| {
        let first_cell = (cell + 1).saturating_sub(width);
        Found { first: grid.first(first_cell), last: grid.last(cell), sum, bound }
    });
    found.collect()
}

/// Instants at which more than `bound` is there, each visitor `(from, until, weight)` staying from `from` to
/// just before `until`; of each crowded stretch, the worst instant and its sum.
pub(super) fn crowds(stays: impl Iterator<Item = (u64, u64, u64)>, bound: u128) -> Vec<(u64, u128)> {
    let mut events: Vec<(u64, bool, u64)> = stays
        .filter(|(from, until, _)| from < until)
        .flat_map(|(from, until, weight)| [(from, true, weight), (until, false, weight)])
        .collect();
    events.sort_unstable();
    let mut sum: u128 = 0;
    let mut worst = Runs::default();
    for together in events.chunk_by(|a, b| a.0 == b.0) {
        for &(_, comes, weight) in together {
            let weight = u128::from(weight);
            sum = if comes { sum + weight } else { sum - weight };
        }
        worst.see(sum as i128 - bound as i128, (together[0].0, sum));
    }
    worst.close()
}

/// Instants at which an interpolating window's own estimate was above its limit; the worst of each bucket.
///
/// Take the charges that certainly lie in one of the newest `k` buckets and are over by `y`, at least one of
/// them in the bucket of `y`. The last of them to be decided was in that bucket too, because decisions never
/// go back to an older bucket, and at `y` or earlier, when the oldest bucket counted for no less than it does
/// at `y`. It was admitted, so all of this fitted.
pub(super) fn in_estimate(charges: &[Charge<'_>], limit: &SlidingWindow) -> Vec<Found> {
    let bucket_us = limit.window().us() / limit.buckets();
    let grid = Grid::Even(bucket_us);
    let mut placed: Vec<(u64, u64, u64)> = charges
        .iter()
        .filter(|charge| grid.cell(charge.start) == grid.cell(charge.end))
        .map(|charge| (grid.cell(charge.end), charge.end, charge.cost))
        .collect();
    placed.sort_unstable();
    let mut totals: BTreeMap<u64, u128> = BTreeMap::new();
    for &(bucket, _, cost) in &placed {
        *totals.entry(bucket).or_default() += u128::from(cost);
    }

    let tick_us = u128::from(limit.tick().us());
    let ticks = u128::from(bucket_us) / tick_us;
    let bound = u128::from(limit.limit());
    let mut found = Vec::new();
    for in_bucket in placed.chunk_by(|a, b| a.0 == b.0) {
        let bucket = in_bucket[0].0;
        let newer_from = (bucket + 1).saturating_sub(limit.buckets());
        let oldest = bucket.checked_sub(limit.buckets()).and_then(|oldest| totals.get(&oldest)).copied();
        let mut newest: u128 = totals.range(newer_from..bucket).map(|(_, total)| total).sum();
        let mut worst: Option<Found> = None;
        for &(_, end, cost) in in_bucket {
            newest += u128::from(cost);
            let passed = u128::from(end - grid.first(bucket)) / tick_us;
            let sum = newest + oldest.unwrap_or(0).saturating_mul(ticks - passed).div_ceil(ticks);
            if sum > worst.map_or(bound, |worst| worst.sum) {
                let first = grid.first(bucket.saturating_sub(limit.buckets()));
                worst = Some(Found { first, last: end, sum, bound });
            }
        }
        found.extend(worst);
    }
    found
}

/// Lives of a meter that hold more than its limit.
///
/// A meter is forgotten when nobody touches it for `expiry_us`. Put charges into an order, any order, such
/// that no two neighbours can be that far apart. If the meter had been forgotten between two of them, some
/// neighbours would lie on different sides of the pause, that far apart. So all belong to one life.
pub(super) fn in_life(charges: &[Charge<'_>], expiry_us: u64, bound: u128) -> Vec<Found> {
    let mut found = Vec::new();
    let mut life: Option<(Found, Charge<'_>)> = None;
    let mut close = |life: Option<(Found, Charge<'_>)>| {
        found.extend(life.map(|(life, _)| life).filter(|life| life.sum > bound));
    };
    // One that is itself as wide as the pause would tear every chain it is part of.
    for charge in charges.iter().filter(|charge| charge.end - charge.start < expiry_us) {
        let cost = u128::from(charge.cost);
        // They come by their starts and are narrow, so the two cannot be further apart the other way around.
        let linked = life.filter(|(_, last)| charge.end - last.start < expiry_us);
        life = Some(match linked {
            Some((life, _)) => {
                let longer = Found { last: life.last.max(charge.end), sum: life.sum + cost, ..life };
                (longer, *charge)
            }
            None => {
                close(life);
                (Found { first: charge.start, last: charge.end, sum: cost, bound }, *charge)
            }
        });
    }
    close(life);
    found
}

/// The charges, of all by their start, that certainly fell into a span.
pub(super) fn within<'c, 'h>(
    charges: &'c [Charge<'h>],
    first: u64,
    last: u64,
) -> impl Iterator<Item = &'c Charge<'h>> {
    let from = charges.partition_point(|charge| charge.start < first);
    let started = charges[from..].iter().take_while(move |charge| charge.start <= last);
    started.filter(move |charge| charge.end <= last)
}

/// The worst of each run of excesses above zero.
struct Runs<T> {
    open: Option<(i128, T)>,
    closed: Vec<T>,
}

impl<T> Default for Runs<T> {
    fn default() -> Runs<T> {
        Runs { open: None, closed: Vec::new() }
    }
}

impl<T> Runs<T> {
    fn see(&mut self, excess: i128, what: T) {
        if excess <= 0 {
            self.closed.extend(self.open.take().map(|(_, worst)| worst));
        } else if self.open.as_ref().is_none_or(|(worst, _)| excess > *worst) {
            self.open = Some((excess, what));
        }
    }

    fn close(mut self) -> Vec<T> {
        self.closed.extend(self.open.take().map(|(_, worst)| worst));
        self.closed
    }
}

/// For each start of a span: its own value plus everything added at it or at a later start. Knows the largest.
struct StartTree {
    /// A heap of nodes; the leaves are the starts in order.
    nodes: Vec<StartNode>,
    leaves: usize,
}

#[derive(Clone, Copy)]
struct StartNode {
    /// Everything added below this node.
    added: i128,
    /// The largest value below it, counting only what was added below it; none if no start is open yet.
    most: Option<(i128, usize)>,
}

impl StartTree {
    fn new(starts: usize) -> StartTree {
        let leaves = starts.next_power_of_two();
        StartTree { nodes: vec![StartNode { added: 0, most: None }; 2 * leaves], leaves }
    }

    /// From now on this start counts, with this value of its own.
    fn open(&mut self, start: usize, own: i128) {
        let leaf = &mut self.nodes[self.leaves + start];
        leaf.most = Some((leaf.added.saturating_add(own), start));
        self.mend(start);
    }

    /// Adds to this start and all before it.
    fn add(&mut self, start: usize, amount: i128) {
        let leaf = &mut self.nodes[self.leaves + start];
        leaf.added = leaf.added.saturating_add(amount);
        leaf.most = leaf.most.map(|(most, at)| (most.saturating_add(amount), at));
        self.mend(start);
    }

    fn mend(&mut self, start: usize) {
        let mut node = (self.leaves + start) / 2;
        while node > 0 {
            let (left, right) = (self.nodes[2 * node], self.nodes[2 * node + 1]);
            let from_left = left.most.map(|(most, at)| (most.saturating_add(right.added), at));
            self.nodes[node] = StartNode {
                added: left.added.saturating_add(right.added),
                // Of equals the later start: the shorter span says more.
                most: from_left.into_iter().chain(right.most).max_by_key(|(most, _)| *most),
            };
            node /= 2;
        }
    }

    /// The largest value and its start.
    fn most(&self) -> (i128, usize) {
        self.nodes[1].most.unwrap_or((0, 0))
    }
}
