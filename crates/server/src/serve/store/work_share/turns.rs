//! The turns of callers: which call goes to the store next.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Bound;

/// Calls that each caller can have in flight whatever others have.
const OWN_CALLS: usize = 8;
/// All callers together can exceed the window by this many own calls.
const OWN_CALLS_MAX: usize = 64;

/// Calls in flight to the store, and calls that wait for their turn in a queue per caller.
///
/// A caller with few calls does not wait. When there is room for more, callers take turns with one entry each. So an entry
/// at the head of its queue waits for at most one entry of each other caller, whatever they have queued.
pub(super) struct Turns<T> {
    in_flight: usize,
    /// The calls in flight of each caller that has some.
    by_caller: HashMap<u64, usize>,
    queues: BTreeMap<u64, VecDeque<Entry<T>>>,
    /// The caller whose turn was last.
    last: u64,
}

/// Calls that start together.
struct Entry<T> {
    calls: usize,
    ticket: T,
}

/// Calls that have started.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Next<T> {
    pub(super) caller: u64,
    pub(super) calls: usize,
    pub(super) ticket: T,
}

impl<T> Turns<T> {
    pub(super) fn new() -> Turns<T> {
        Turns { in_flight: 0, by_caller: HashMap::new(), queues: BTreeMap::new(), last: 0 }
    }

    pub(super) const fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub(super) fn waiting(&self) -> usize {
        self.queues.values().map(VecDeque::len).sum()
    }

    /// Starts calls if they need not wait: there is room for them, and no earlier call has a right to it.
    pub(super) fn try_start(&mut self, caller: u64, calls: usize, window: usize) -> bool {
        let is_first = !self.queues.contains_key(&caller);
        let is_turn = self.queues.is_empty() && self.fits(calls, window);
        let starts = is_first && (is_turn || self.is_own(caller, calls, window));
        if starts {
            self.start(caller, calls);
        }
        starts
    }

    /// Starts calls without a turn.
    pub(super) fn start(&mut self, caller: u64, calls: usize) {
        self.in_flight += calls;
        *self.by_caller.entry(caller).or_default() += calls;
    }

    /// Queues calls of a caller.
    pub(super) fn wait(&mut self, caller: u64, calls: usize, ticket: T) {
        self.queues.entry(caller).or_default().push_back(Entry { calls, ticket });
    }

    /// Ends calls that were in flight.
    pub(super) fn finish(&mut self, caller: u64, calls: usize) {
        self.in_flight = self.in_flight.saturating_sub(calls);
        let left = self.by_caller.get(&caller).map_or(0, |started| started.saturating_sub(calls));
        match left {
            0 => drop(self.by_caller.remove(&caller)),
            left => drop(self.by_caller.insert(caller, left)),
        }
    }

    /// Starts the next calls if there is room: of the caller whose calls have just ended, or of the caller whose turn it
    /// is. Skips tickets that are no longer wanted.
    pub(super) fn next(
        &mut self,
        ended: u64,
        window: usize,
        is_wanted: impl Fn(&T) -> bool,
    ) -> Option<Next<T>> {
        if let Some(calls) = self.head(ended, &is_wanted)
            && self.is_own(ended, calls, window)
        {
            return self.start_head(ended);
        }
        loop {
            let after = (Bound::Excluded(self.last), Bound::Unbounded);
            let caller = *self.queues.range(after).next().or_else(|| self.queues.iter().next())?.0;
            let Some(calls) = self.head(caller, &is_wanted) else { continue };
            if !self.fits(calls, window) {
                return None;
            }
            self.last = caller;
            return self.start_head(caller);
        }
    }

    /// The calls of a caller's first entry that is wanted. A queue without one is removed.
    fn head(&mut self, caller: u64, is_wanted: impl Fn(&T) -> bool) -> Option<usize> {
        let queue = self.queues.get_mut(&caller)?;
        while queue.front().is_some_and(|entry| !is_wanted(&entry.ticket)) {
            queue.pop_front();
        }
        let calls = queue.front().map(|entry| entry.calls);
        if calls.is_none() {
            self.queues.remove(&caller);
        }
        calls
    }

    fn start_head(&mut self, caller: u64) -> Option<Next<T>> {
        let queue = self.queues.get_mut(&caller)?;
        let Entry { calls, ticket } = queue.pop_front()?;
        if queue.is_empty() {
            self.queues.remove(&caller);
        }
        self.start(caller, calls);
        Some(Next { caller, calls, ticket })
    }

    /// A single entry that is larger than the window starts when nothing else is in flight.
    const fn fits(&self, calls: usize, window: usize) -> bool {
        self.in_flight == 0 || self.in_flight + calls <= window
    }

    /// Whether the calls are among those that the caller can have whatever others have.
    fn is_own(&self, caller: u64, calls: usize, window: usize) -> bool {
        let started = self.by_caller.get(&caller).copied().unwrap_or_default();
        let is_bounded = self.by_caller.len() < OWN_CALLS_MAX / OWN_CALLS
            || self.in_flight + calls <= window + OWN_CALLS_MAX;
        started + calls <= OWN_CALLS && is_bounded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Callers that already have their own calls in flight.
    fn busy(callers: &[u64]) -> Turns<&'static str> {
        let mut turns = Turns::new();
        callers.iter().for_each(|caller| turns.start(*caller, OWN_CALLS));
        turns
    }

    fn next(turns: &mut Turns<&'static str>, window: usize) -> Option<(u64, &'static str)> {
        turns.next(u64::MAX, window, |ticket| *ticket != "gone").map(|next| (next.caller, next.ticket))
    }

    #[test]
    fn callers_take_turns_whatever_they_have_queued() {
        let mut turns = busy(&[1, 2, 3]);
        let window = turns.in_flight();
        for _ in 0..1_000 {
            turns.wait(1, 1, "");
            turns.wait(2, 1, "");
        }
        turns.wait(3, 1, "");
        turns.wait(3, 1, "");
        let mut started = Vec::new();
        for _ in 0..8 {
            assert_eq!(next(&mut turns, window), None, "the window is full");
            started.extend(next(&mut turns, window + 1).map(|(caller, _)| caller));
            turns.in_flight -= 1;
        }
        assert_eq!(started, [1, 2, 3, 1, 2, 3, 1, 2]);
    }

    #[test]
    fn a_caller_with_few_calls_does_not_wait_and_one_with_many_does() {
        let mut turns = busy(&[1]);
        turns.start(1, 100);
        turns.wait(1, 1, "first");
        for _ in 0..OWN_CALLS {
            assert!(turns.try_start(2, 1, 4), "its own calls");
        }
        assert!(!turns.try_start(2, 1, 4));
        turns.wait(2, 1, "second");
        turns.finish(2, 1);
        let started = turns.next(2, 4, |_| true).expect("a call of this caller has ended");
        assert_eq!(started, Next { caller: 2, calls: 1, ticket: "second" });
        assert_eq!(next(&mut turns, 4), None, "the other caller waits for the window");
    }

    #[test]
    fn calls_of_their_own_are_bounded_in_sum() {
        let mut turns = Turns::<()>::new();
        let started = (0..1_000).filter(|caller| turns.try_start(*caller, 1, 4)).count();
        assert_eq!(started, 4 + OWN_CALLS_MAX);
    }

    #[test]
    fn a_new_call_does_not_overtake_waiting_ones() {
        let mut turns = busy(&[1, 2]);
        turns.wait(1, 1, "waits");
        assert!(!turns.try_start(1, 1, 100), "its own caller waits");
        assert!(!turns.try_start(2, 1, 100), "another caller waits");
        assert_eq!(next(&mut turns, 100), Some((1, "waits")));
        assert!(turns.try_start(2, 1, 100));
    }

    #[test]
    fn calls_beyond_the_window_start_alone_and_unwanted_ones_never() {
        let mut turns = busy(&[1]);
        turns.wait(1, 1, "gone");
        turns.wait(1, 32, "large");
        turns.wait(2, 1, "small");
        assert_eq!(next(&mut turns, 4), None, "the large one waits for the calls in flight");
        turns.finish(1, OWN_CALLS);
        assert_eq!(next(&mut turns, 4), Some((1, "large")));
        assert_eq!((next(&mut turns, 4), turns.waiting()), (None, 1));
        turns.finish(1, 32);
        assert_eq!(next(&mut turns, 4), Some((2, "small")));
        assert_eq!((turns.in_flight(), turns.waiting()), (1, 0));
    }
}
