//! Model of the sliding log: the list of admitted requests.

use tollgate_core::{Decline, Mark, Operation, Time};

use super::{AT_ONCE, Big, Booked, END, Expected, Oracle, Status, big, done, first, time};

/// The limit's numbers.
#[derive(Clone, Copy, Debug)]
pub struct Numbers {
    /// Units per window.
    pub limit: u64,
    /// The window's length.
    pub window_us: u64,
    /// Largest number of log entries.
    pub entries: u64,
}

/// Every admitted request that may still count, and its refunds as negative costs.
#[derive(Default, Clone)]
pub struct SlidingLogOracle {
    requests: Vec<(Big, Big)>,
}

/// Number of newest entries that a refund searches.
const REACH: usize = 16;

impl SlidingLogOracle {
    fn newest(&self) -> Option<Big> {
        self.requests.iter().map(|&(at, _)| at).max()
    }

    fn effective(&self, now: Big) -> Big {
        self.newest().map_or(now, |newest| now.max(newest))
    }

    fn live(&self, window: Big, now: Big) -> impl Iterator<Item = (Big, Big)> + '_ {
        let now = self.effective(now);
        self.requests.iter().copied().filter(move |&(at, _)| now < (at + window).min(END))
    }

    fn used(&self, window: Big, now: Big) -> Big {
        self.live(window, now).map(|(_, cost)| cost).sum()
    }

    fn instants(&self, window: Big, now: Big) -> Vec<Big> {
        let mut instants: Vec<_> = self.live(window, now).map(|(at, _)| at).collect();
        instants.sort_unstable();
        instants.dedup();
        instants
    }

    fn room(&self, numbers: &Numbers, now: Big) -> bool {
        let instants = self.instants(numbers.window_us.into(), now);
        self.newest() == Some(self.effective(now)) || instants.len() < numbers.entries as usize
    }

    fn fits(&self, numbers: &Numbers, now: Big, needed: Big) -> bool {
        self.room(numbers, now) && self.used(numbers.window_us.into(), now) + needed <= numbers.limit.into()
    }

    fn status(&self, numbers: &Numbers, now: Big, room: bool) -> Status {
        let (limit, window) = (Big::from(numbers.limit), Big::from(numbers.window_us));
        let left = (limit - self.used(window, now)).max(0);
        Status {
            limit,
            remaining: if room { left } else { 0 },
            reset_at: first(self.effective(now), |t| self.used(window, t) == 0),
        }
    }

    /// Drops entries that no longer count, as core does when it adds one.
    fn prune(&mut self, window: Big, now: Big) {
        self.requests = self.live(window, now).collect();
    }
}

impl Oracle for SlidingLogOracle {
    type Numbers = Numbers;

    fn step(&mut self, numbers: &Numbers, now: Time, operation: &Operation) -> Expected {
        let (window, now) = (Big::from(numbers.window_us), big(now));
        let status = self.status(numbers, now, self.room(numbers, now));
        match *operation {
            Operation::Peek { cost } => {
                self.clone().step(numbers, time(now), &Operation::charge(cost)).without_write()
            }
            Operation::Charge { cost, .. } => {
                let needed = Big::from(cost.max(1));
                let at = self.effective(now);
                if !self.fits(numbers, now, needed) {
                    return status.refused(first(at + 1, |t| self.fits(numbers, t, needed)));
                }
                if cost == 0 {
                    return status.unchanged(AT_ONCE);
                }
                self.prune(window, now);
                self.requests.push((at, cost.into()));
                self.status(numbers, now, true).written(AT_ONCE, Mark::At { time: time(at) }, at + window)
            }
            Operation::Refund { mark: Mark::At { time: at }, cost, amount } => {
                let (at, instants) = (big(at), self.instants(window, now));
                let Some(index) = instants.iter().position(|&instant| instant == at) else {
                    return status.declined(Decline::NotHeld);
                };
                if instants.len() - index > REACH {
                    return status.declined(Decline::TooOld);
                }
                let held: Big =
                    self.requests.iter().filter(|&&(when, _)| when == at).map(|&(_, cost)| cost).sum();
                let given = held.min(cost.min(amount).into());
                if given == 0 {
                    return status.declined(Decline::NotHeld);
                }
                let room = self.room(numbers, now);
                self.requests.push((at, -given));
                self.status(numbers, now, room).amended(given)
            }
            Operation::Refund { .. } => status.declined(Decline::NotHeld),
            Operation::Record { cost } => {
                let at = self.effective(now);
                let amount = Big::from(cost).min(END - self.used(window, now));
                if amount > 0 {
                    let (has_room, newest) = (self.room(numbers, now), self.newest());
                    self.prune(window, now);
                    // Without room, everything of the newest instant moves to now.
                    let moved = self.requests.iter_mut().filter(|(at, _)| !has_room && Some(*at) == newest);
                    moved.for_each(|request| request.0 = at);
                    self.requests.push((at, amount));
                }
                let overdraft = self.used(window, now) - Big::from(numbers.limit);
                let fits = |t: Big| self.fits(numbers, t, 1);
                let free_at = if fits(now) { now } else { first(at + 1, fits) };
                let status = self.status(numbers, now, self.room(numbers, now));
                let mark = Mark::At { time: time(at) };
                status.recorded(Booked { amount, overdraft, free_at }, mark, at + window)
            }
            Operation::Credit { cost } => {
                let given = self.used(window, now).min(cost.into());
                if given == 0 {
                    return status.unchanged(done(0));
                }
                let now = self.effective(now);
                let mut missing = given;
                let mut left = Vec::new();
                for instant in self.instants(window, now) {
                    let here = self.requests.iter().filter(|(at, _)| *at == instant);
                    let held: Big = here.map(|(_, cost)| cost).sum();
                    let taken = missing.min(held);
                    missing -= taken;
                    if held > taken || !left.is_empty() {
                        left.push((instant, held - taken));
                    }
                }
                self.requests = left;
                let status = self.status(numbers, now, self.room(numbers, now));
                match self.newest() {
                    Some(newest) => status.written(done(given), Mark::None, newest + window),
                    None => status.amended(given),
                }
            }
            _ => status.declined(Decline::NotSupported),
        }
    }
}
