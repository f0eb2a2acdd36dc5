//! How large a grant is: what this server needs during one hold, within what the store has left.

use tollgate_core::Limit;
use tollgate_core::plan::slice::SliceHold;

/// A grant for fewer requests than this is not worth its unspent rest: the rule is checked exactly instead. So early
/// refusals happen only near the limit.
pub(super) const REQUESTS_MIN: u64 = 8;

/// Servers to assume if their number is not known.
const SERVERS_UNKNOWN: u64 = 4;

/// Units that were asked for, counted per period of one hold.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Demand {
    period: u64,
    current: u64,
    previous: u64,
}

impl Demand {
    /// Counts units that are asked for now.
    pub(super) fn note(&mut self, cost: u64, now_us: u64, hold: SliceHold) {
        let period = now_us / hold.span().us();
        if period != self.period {
            self.previous = if period == self.period + 1 { self.current } else { 0 };
            (self.period, self.current) = (period, 0);
        }
        self.current = self.current.saturating_add(cost);
    }

    /// Units of one hold: the last whole one, or the one that has begun if it has more.
    const fn per_hold(&self) -> u64 {
        if self.previous > self.current { self.previous } else { self.current }
    }
}

/// Returns the units to book in addition to `cost`, or 0 if the rule is to be checked exactly.
///
/// `remaining` is what the store had left at its last answer. No server takes more than its part of half of that.
pub(super) fn grant_size(
    demand: &Demand,
    remaining: u64,
    cost: u64,
    servers: Option<u32>,
    limit: &Limit,
    hold: SliceHold,
) -> u64 {
    let servers = servers.map_or(SERVERS_UNKNOWN, |servers| u64::from(servers.max(1)));
    let part = remaining.saturating_sub(cost) / (2 * servers);
    let useful = limit.slice_max(hold).unwrap_or(u64::MAX);
    let size = demand.per_hold().min(part).min(useful);
    if size < cost.saturating_mul(REQUESTS_MIN) { 0 } else { size }
}

#[cfg(test)]
mod tests {
    use tollgate_core::Span;
    use tollgate_core::algorithm::bucket::Bucket;
    use tollgate_core::algorithm::fixed_window::FixedWindow;

    use super::*;

    fn hold() -> SliceHold {
        SliceHold::new(Span::from_ms(100)).unwrap()
    }

    fn demand(per_hold: u64) -> Demand {
        Demand { previous: per_hold, ..Demand::default() }
    }

    #[test]
    fn a_grant_is_the_smallest_of_demand_part_and_rate() {
        let window = Limit::FixedWindow(FixedWindow::new(1_000, Span::from_secs(1)).unwrap());
        let bucket = Limit::Bucket(Bucket::tokens(100, Span::from_secs(1), 1_000).unwrap());
        for (limit, per_hold, remaining, servers, expected) in [
            (window, 50, 1_000, Some(2), 50),
            (window, 500, 1_001, Some(2), 250),
            (window, 500, 1_001, None, 125),
            (window, 500, 61, Some(3), 10),
            (window, 500, 40, Some(3), 0),
            (window, 7, 1_000, Some(1), 0),
            (bucket, 500, 1_000, Some(1), 10),
        ] {
            let size = grant_size(&demand(per_hold), remaining, 1, servers, &limit, hold());
            assert_eq!(size, expected, "demand {per_hold}, remaining {remaining}, servers {servers:?}");
        }
        assert_eq!(grant_size(&demand(50), 1_000, 10, Some(1), &window, hold()), 0, "only 5 requests");
    }

    #[test]
    fn demand_of_a_hold_long_ago_does_not_count() {
        let mut demand = Demand::default();
        for at_ms in [0, 10, 20, 30] {
            demand.note(2, at_ms * 1_000, hold());
        }
        assert_eq!(demand.per_hold(), 8);
        demand.note(1, 100_000, hold());
        assert_eq!(demand.per_hold(), 8, "the previous hold counts");
        demand.note(1, 400_000, hold());
        assert_eq!(demand.per_hold(), 1);
    }
}
