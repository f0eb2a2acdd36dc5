//! What the calls on one key charged, certainly and possibly. Several calls with one request id become one charge.

use std::collections::BTreeMap;

use tollgate_core::{Span, Time};

use super::{CallResult, Held, Record};

/// A charge that took effect, if at all, between two instants in microseconds, inclusive.
#[derive(Clone, Copy)]
pub(super) struct Charge<'h> {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) cost: u64,
    pub(super) held: Option<Held>,
    /// A call that made it, for reports.
    pub(super) record: &'h Record,
}

/// All charges of one key. Each list is sorted by `start`.
#[derive(Default)]
pub(super) struct Charges<'h> {
    /// Charges that were admitted, and happened exactly once.
    pub(super) certain: Vec<Charge<'h>>,
    /// A superset of the charges that happened.
    pub(super) possible: Vec<Charge<'h>>,
}

impl<'h> Charge<'h> {
    fn of(record: &'h Record) -> Charge<'h> {
        let Record { start, end, cost, held, .. } = *record;
        Charge { start: start.us(), end: end.us(), cost, held, record }
    }

    /// Whether it was recorded, not admitted.
    pub(super) fn is_record(&self) -> bool {
        self.record.answer == CallResult::Recorded
    }
}

impl<'h> Charges<'h> {
    /// Returns the charges of calls on one key. The store remembers an id for `horizon`.
    pub(super) fn of(calls: &[&'h Record], horizon: Span) -> Charges<'h> {
        let mut charges = Charges::default();
        let mut attempts: BTreeMap<(u128, bool), Vec<&'h Record>> = BTreeMap::new();
        // A charge of cost 0 writes nothing.
        for &call in calls.iter().filter(|call| call.answer.may_charge() && call.cost > 0) {
            match call.id {
                Some(id) => {
                    attempts.entry((id, call.answer == CallResult::Recorded)).or_default().push(call);
                }
                None => charges.add(call),
            }
        }
        attempts.values().for_each(|attempts| charges.add_attempts(attempts, horizon));
        charges.certain.sort_by_key(|charge| charge.start);
        charges.possible.sort_by_key(|charge| charge.start);
        charges
    }

    fn add(&mut self, call: &'h Record) {
        if call.answer == CallResult::Allow {
            self.certain.push(Charge::of(call));
        }
        self.possible.push(Charge::of(call));
    }

    /// Adds calls with one id. The first that reached the store charged, whichever that was: at the earliest when the
    /// earliest call started, at the latest when the first admission was known.
    fn add_attempts(&mut self, attempts: &[&'h Record], horizon: Span) {
        let start = attempts.iter().map(|call| call.start).min().unwrap_or(Time::ZERO);
        let last_end = attempts.iter().map(|call| call.end).max().unwrap_or(Time::MAX);
        let held = attempts.iter().filter(|call| call.answer == CallResult::Allow).find_map(|call| call.held);
        let held = held.or_else(|| attempts.iter().find_map(|call| call.held));
        let admitted =
            attempts.iter().filter(|call| call.answer == CallResult::Allow).min_by_key(|call| call.end);
        let cost = attempts.iter().map(|call| call.cost).min().unwrap_or(0);
        let once =
            admitted.map(|call| Charge { start: start.us(), end: call.end.us(), cost, held, record: call });
        self.certain.extend(once);

        // After the horizon a store may forget an id and charge again. With different costs under one id it is unknown
        // which was charged. In both cases each call may have charged.
        let remembered = last_end.since(start) < horizon;
        let same_cost = attempts.iter().all(|call| call.cost == cost);
        match (once, attempts.first()) {
            (Some(once), _) if remembered && same_cost => self.possible.push(once),
            (None, Some(first)) if remembered && same_cost => {
                self.possible.push(Charge {
                    start: start.us(),
                    end: last_end.us(),
                    cost,
                    held,
                    record: first,
                });
            }
            _ => self.possible.extend(attempts.iter().map(|call| Charge::of(call))),
        }
    }
}
