//! Over-admission: searches for spans in which more cost was certainly admitted than allowed.
//!
//! A charge counts in a span only if its whole interval is inside. Then it happened inside the span in any case, so the
//! real cost of the span is at least the sum found here. A sum above the bound proves a violation, whatever the real
//! instants were.

use std::collections::BTreeMap;

use tollgate_core::algorithm::sliding_window::SlidingWindow;

use super::charge::Charge;

/// A span with too much cost.
#[derive(Clone, Copy)]
pub(super) struct Found {
    /// Its first instant.
    pub(super) first: u64,
    /// Its last instant.
    pub(super) last: u64,
    /// Cost that was certainly admitted in it.
    pub(super) sum: u128,
    /// Cost that is allowed in it.
    pub(super) bound: u128,
}

/// Divides time into cells. A limit does not distinguish instants of one cell.
#[derive(Clone, Copy)]
pub(super) enum Grid {
    /// Cells of this many microseconds, counted from 1970.
    Even(u64),
    /// Three calendar periods, from the first instant of each to the first instant after all.
    Periods([u64; 4]),
}

/// A bound for every number of cells: at most `burst + floor((n - 1) * drain / scale)` in any `n` consecutive cells.
#[derive(Clone, Copy)]
pub(super) struct Line {
    pub(super) burst: u64,
    pub(super) drain: u64,
    pub(super) scale: u64,
}

impl Grid {
    /// Returns the cell that contains an instant.
    pub(super) fn cell(&self, at: u64) -> u64 {
        match self {
            Grid::Even(unit) => at / unit,
            Grid::Periods(starts) => starts.partition_point(|start| *start <= at).saturating_sub(1) as u64,
        }
    }

    /// Returns the first instant of a cell.
    fn first(&self, cell: u64) -> u64 {
        match self {
            Grid::Even(unit) => cell.saturating_mul(*unit),
            Grid::Periods(starts) => starts[(cell as usize).min(starts.len() - 1)],
        }
    }

    /// Returns the last instant of a cell.
    fn last(&self, cell: u64) -> u64 {
        self.first(cell.saturating_add(1)).saturating_sub(1)
    }
}

impl Line {
    fn bound(&self, first: u64, last: u64) -> u128 {
        u128::from(self.burst) + u128::from(last - first) * u128::from(self.drain) / u128::from(self.scale)
    }
}

/// Returns spans of any number of cells that exceed the bound: of overlapping spans, the worst.
///
/// The sum of a span is a whole number, so `sum <= burst + floor(drain * (y - x) / scale)` for the span from
/// cell `x` to cell `y` is equivalent to `scale * sum + drain * x <= scale * burst + drain * y`. The sweep goes through
/// the ends `y` in order and keeps the left side for every start `x` in a tree, so that it compares all pairs in
/// `n log n` steps.
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
        // A start after this end does not begin a span yet.
        while let Some(&first) = starts.get(opened).filter(|first| **first <= last) {
            spans.open(opened, drain * i128::from(first));
            opened += 1;
        }
        for &(_, first, cost) in same_end {
            spans.add(starts.partition_point(|start| *start < first), scaled(cost));
        }
        let (most, at) = spans.most();
        let excess = most.saturating_sub(scaled(line.burst)).saturating_sub(drain * i128::from(last));
        worst.observe(excess, (starts[at], last));
    }
    let found = worst.close().into_iter().map(|(first_cell, last_cell)| {
        let (first, last) = (grid.first(first_cell), grid.last(last_cell));
        let sum = within(charges, first, last).map(|charge| u128::from(charge.cost)).sum();
        Found { first, last, sum, bound: line.bound(first_cell, last_cell) }
    });
    found.collect()
}

/// Returns spans of `width` cells with more cost than `bound`: of overlapping spans, the worst.
pub(super) fn in_width(charges: &[Charge<'_>], grid: Grid, width: u64, bound: u128) -> Vec<Found> {
    // The span that ends in cell y contains the charge from the cell of the charge's end on, until the span's start
    // passes the cell of the charge's start.
    let stays = charges.iter().map(|charge| {
        let (start, end) = (grid.cell(charge.start), grid.cell(charge.end));
        (end, start.saturating_add(width), charge.cost)
    });
    let found = overfull_instants(stays, bound).into_iter().map(|(cell, sum)| {
        let first_cell = (cell + 1).saturating_sub(width);
        Found { first: grid.first(first_cell), last: grid.last(cell), sum, bound }
    });
    found.collect()
}

/// Returns instants at which the total weight exceeds `bound`. Each `(from, until, weight)` counts from `from` to just
/// before `until`. Of each run of such instants, returns the worst instant and its sum.
pub(super) fn overfull_instants(
    stays: impl Iterator<Item = (u64, u64, u64)>,
    bound: u128,
) -> Vec<(u64, u128)> {
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
        worst.observe(sum as i128 - bound as i128, (together[0].0, sum));
    }
    worst.close()
}

/// Returns instants at which an interpolated window's own estimate exceeded its limit: the worst of each bucket.
///
/// Take the charges that are certainly in one of the newest `k` buckets and ended by `y`, at least one of them in the
/// bucket of `y`. The last of them to be decided was in that bucket too, because decisions never go back to an older
/// bucket. It was decided at `y` or earlier, when the oldest bucket counted at least as much as it does at `y`. It was
/// admitted, so all of them fitted.
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

/// Returns lifetimes of a meter in which more than its limit was admitted.
///
/// A meter expires if it is not written for `expiry_us`. Put charges into any order such that no two neighbours can be
/// that far apart. If the meter had expired between two of them, some neighbours would be on different sides of the
/// pause and that far apart. So all of them belong to one lifetime.
pub(super) fn overfull_lifetimes(charges: &[Charge<'_>], expiry_us: u64, bound: u128) -> Vec<Found> {
    let mut found = Vec::new();
    let mut life: Option<(Found, Charge<'_>)> = None;
    let mut close = |life: Option<(Found, Charge<'_>)>| {
        found.extend(life.map(|(life, _)| life).filter(|life| life.sum > bound));
    };
    // A charge whose interval is as wide as the pause would break every chain.
    for charge in charges.iter().filter(|charge| charge.end - charge.start < expiry_us) {
        let cost = u128::from(charge.cost);
        // They are sorted by start and narrow, so the reverse distance cannot be larger.
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

/// Returns the charges that are certainly in a span. `charges` must be sorted by start.
pub(super) fn within<'c, 'h>(
    charges: &'c [Charge<'h>],
    first: u64,
    last: u64,
) -> impl Iterator<Item = &'c Charge<'h>> {
    let from = charges.partition_point(|charge| charge.start < first);
    let started = charges[from..].iter().take_while(move |charge| charge.start <= last);
    started.filter(move |charge| charge.end <= last)
}

/// Collects the worst of each run of positive excesses.
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
    fn observe(&mut self, excess: i128, what: T) {
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

/// For each start of a span: its own value plus everything added at it or at a later start. Returns the maximum.
struct StartTree {
    /// A heap of nodes; the leaves are the starts in order.
    nodes: Vec<StartNode>,
    leaves: usize,
}

#[derive(Clone, Copy)]
struct StartNode {
    /// Sum of everything added below this node.
    added: i128,
    /// Largest value below it, counting only what was added below it. `None` if no start is open yet.
    most: Option<(i128, usize)>,
}

impl StartTree {
    fn new(starts: usize) -> StartTree {
        let leaves = starts.next_power_of_two();
        StartTree { nodes: vec![StartNode { added: 0, most: None }; 2 * leaves], leaves }
    }

    /// Opens a start with this value.
    fn open(&mut self, start: usize, own: i128) {
        let leaf = &mut self.nodes[self.leaves + start];
        leaf.most = Some((leaf.added.saturating_add(own), start));
        self.update_ancestors(start);
    }

    /// Adds to this start and all before it.
    fn add(&mut self, start: usize, amount: i128) {
        let leaf = &mut self.nodes[self.leaves + start];
        leaf.added = leaf.added.saturating_add(amount);
        leaf.most = leaf.most.map(|(most, at)| (most.saturating_add(amount), at));
        self.update_ancestors(start);
    }

    fn update_ancestors(&mut self, start: usize) {
        let mut node = (self.leaves + start) / 2;
        while node > 0 {
            let (left, right) = (self.nodes[2 * node], self.nodes[2 * node + 1]);
            let from_left = left.most.map(|(most, at)| (most.saturating_add(right.added), at));
            self.nodes[node] = StartNode {
                added: left.added.saturating_add(right.added),
                // Of equal values, prefers the later start: the shorter span is more specific.
                most: from_left.into_iter().chain(right.most).max_by_key(|(most, _)| *most),
            };
            node /= 2;
        }
    }

    /// Returns the largest value and its start.
    fn most(&self) -> (i128, usize) {
        self.nodes[1].most.unwrap_or((0, 0))
    }
}
