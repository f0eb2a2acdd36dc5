//! Divides the calls to the store among callers, so that one caller's load does not delay another caller's checks beyond the
//! deadline.
//!
//! The store says how many calls it answers well before the deadline. Further calls wait here, in a queue per caller, and
//! callers take turns; a caller with few calls does not wait. A call whose turn does not come in time is refused, and so is a call of a caller that has too many.
//! Neither is answered by a failure policy: the store works. A store that does not answer at all is the business of the
//! rules' failure policies.

mod turns;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::access::InFlight;
use crate::serve::edge::auth::Caller;
use crate::serve::observe::{Exposition, Kind};
use turns::{Next, Turns};

/// Limits the calls of each caller.
pub(crate) struct WorkShares {
    /// `None` if nothing waits: the memory store answers at once.
    queue: Option<Arc<CallQueue>>,
    max: usize,
}

/// The calls of all callers.
struct CallQueue {
    /// How many calls may be in flight now.
    window: Box<dyn Fn() -> usize + Send + Sync>,
    /// The deadline of a call.
    deadline: Duration,
    state: Mutex<QueueState>,
    refused: AtomicU64,
}

struct QueueState {
    turns: Turns<oneshot::Sender<WorkTurn>>,
    /// When the store was last seen to answer: a call ended within the deadline, or was the first in flight.
    progress: Instant,
}

/// Counted calls of a caller. Dropping it ends the count.
pub(crate) struct WorkPermit {
    taken: Option<TakenPlaces>,
}

struct TakenPlaces {
    queue: Arc<CallQueue>,
    in_flight: Arc<InFlight>,
    calls: usize,
}

/// Calls whose turn has come. Dropping it ends the calls.
pub(crate) struct WorkTurn {
    _started: Option<StartedCalls>,
}

struct StartedCalls {
    queue: Arc<CallQueue>,
    caller: u64,
    calls: usize,
    since: Instant,
}

/// A caller has too many calls that wait for the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Overloaded;

impl WorkShares {
    /// Shares of a store with this deadline. `window` is how many calls it can have in flight, and `max` how many one
    /// caller can have, in flight or waiting.
    pub(crate) fn of_store(
        window: impl Fn() -> usize + Send + Sync + 'static,
        deadline: Duration,
        max: usize,
    ) -> WorkShares {
        let state = QueueState { turns: Turns::new(), progress: Instant::now() };
        let queue = CallQueue {
            window: Box::new(window),
            deadline,
            state: Mutex::new(state),
            refused: AtomicU64::new(0),
        };
        WorkShares { queue: Some(Arc::new(queue)), max }
    }

    /// No limits, for a store that answers at once.
    pub(crate) const fn unlimited() -> WorkShares {
        WorkShares { queue: None, max: usize::MAX }
    }

    /// Counts this many calls of a caller, if its share allows them. A caller without any can always make them.
    #[inline]
    pub(crate) fn enter(&self, caller: &Caller, calls: usize) -> Result<WorkPermit, Overloaded> {
        match (&self.queue, caller.in_flight()) {
            (Some(queue), Some(in_flight)) if calls > 0 => self.take(queue, in_flight, calls),
            _ => Ok(WorkPermit { taken: None }),
        }
    }

    fn take(
        &self,
        queue: &Arc<CallQueue>,
        in_flight: &Arc<InFlight>,
        calls: usize,
    ) -> Result<WorkPermit, Overloaded> {
        let before = in_flight.add(calls);
        // Dropping the permit corrects the count.
        let taken = TakenPlaces { queue: Arc::clone(queue), in_flight: Arc::clone(in_flight), calls };
        let permit = WorkPermit { taken: Some(taken) };
        if before > 0 && before + calls > self.max { Err(queue.refuse(calls)) } else { Ok(permit) }
    }

    pub(crate) fn write(&self, page: &mut Exposition) {
        let Some(queue) = &self.queue else { return };
        let waiting = queue.state.lock().turns.waiting();
        page.single(
            "tollgate_store_window",
            Kind::Gauge,
            "Calls that may be in flight to the store now; fewer while the store is slow.",
            (queue.window)(),
        );
        page.single(
            "tollgate_store_waiting",
            Kind::Gauge,
            "Calls that wait for their caller's turn.",
            waiting,
        );
        page.single(
            "tollgate_overloaded_total",
            Kind::Counter,
            "Calls that were refused because their caller had too many in flight.",
            queue.refused.load(Ordering::Relaxed),
        );
    }
}

impl WorkPermit {
    /// Waits for the turn of all calls together.
    #[inline]
    pub(crate) async fn turn(&self) -> Result<WorkTurn, Overloaded> {
        self.turn_of(self.taken.as_ref().map_or(0, |taken| taken.calls)).await
    }

    /// Waits for the turn of one of the calls.
    pub(crate) async fn turn_of_one(&self) -> Result<WorkTurn, Overloaded> {
        self.turn_of(1).await
    }

    async fn turn_of(&self, calls: usize) -> Result<WorkTurn, Overloaded> {
        match &self.taken {
            None => Ok(WorkTurn { _started: None }),
            Some(taken) => taken.queue.turn(taken.in_flight.caller(), calls).await,
        }
    }
}

impl CallQueue {
    async fn turn(self: &Arc<CallQueue>, caller: u64, calls: usize) -> Result<WorkTurn, Overloaded> {
        let waiting = {
            let mut state = self.state.lock();
            let now = Instant::now();
            if state.turns.in_flight() == 0 {
                state.progress = now;
            }
            if state.turns.try_start(caller, calls, (self.window)()) {
                return Ok(self.started(caller, calls, now));
            }
            if self.is_stalled(&state, now) {
                state.turns.start(caller, calls);
                return Ok(self.started(caller, calls, now));
            }
            let (ticket, waiting) = oneshot::channel();
            state.turns.wait(caller, calls, ticket);
            waiting
        };
        // With the other half, a call takes about the deadline in all.
        if let Ok(Ok(turn)) = timeout(self.deadline / 2, waiting).await {
            return Ok(turn);
        }
        let (mut state, now) = (self.state.lock(), Instant::now());
        if self.is_stalled(&state, now) {
            state.turns.start(caller, calls);
            return Ok(self.started(caller, calls, now));
        }
        drop(state);
        Err(self.refuse(calls))
    }

    fn started(self: &Arc<CallQueue>, caller: u64, calls: usize, since: Instant) -> WorkTurn {
        WorkTurn { _started: Some(StartedCalls { queue: Arc::clone(self), caller, calls, since }) }
    }

    /// Whether the store has answered nothing for a whole deadline. Then no call waits, and failure policies answer.
    fn is_stalled(&self, state: &QueueState, now: Instant) -> bool {
        state.turns.in_flight() > 0 && now.saturating_duration_since(state.progress) > self.deadline
    }

    /// Ends calls, and starts those whose turn it is.
    fn finish(self: &Arc<CallQueue>, caller: u64, calls: usize, since: Instant) {
        let mut started = Vec::new();
        let now = Instant::now();
        {
            let mut state = self.state.lock();
            state.turns.finish(caller, calls);
            if now.saturating_duration_since(since) < self.deadline {
                state.progress = now;
            }
            let window = (self.window)();
            while let Some(next) = state.turns.next(caller, window, |ticket| !ticket.is_closed()) {
                started.push(next);
            }
        }
        for Next { caller, calls, ticket } in started {
            // A call that has just stopped waiting ends with the value that comes back.
            drop(ticket.send(self.started(caller, calls, now)));
        }
    }

    fn refuse(&self, calls: usize) -> Overloaded {
        self.refused.fetch_add(calls as u64, Ordering::Relaxed);
        Overloaded
    }
}

impl Drop for TakenPlaces {
    fn drop(&mut self) {
        self.in_flight.remove(self.calls);
    }
}

impl Drop for StartedCalls {
    fn drop(&mut self) {
        self.queue.finish(self.caller, self.calls, self.since);
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::JoinHandle;

    use super::*;

    const DEADLINE: Duration = Duration::from_millis(80);

    fn shares(window: usize, max: usize) -> (WorkShares, Arc<CallQueue>) {
        let shares = WorkShares::of_store(move || window, DEADLINE, max);
        let queue = Arc::clone(shares.queue.as_ref().expect("a shared store"));
        (shares, queue)
    }

    #[test]
    fn a_caller_gets_its_share_and_finished_calls_make_room() {
        let (shares, queue) = shares(64, 4);
        let take = |caller: &Arc<InFlight>, calls| shares.take(&queue, caller, calls);
        let (one, other) = (Arc::<InFlight>::default(), Arc::<InFlight>::default());
        let mut held: Vec<_> = (0..4).map(|_| take(&one, 1).expect("within the share")).collect();
        assert_eq!(take(&one, 1).map(drop), Err(Overloaded));
        assert!(take(&other, 1).is_ok(), "another caller has its own share");
        held.pop();
        assert!(take(&one, 1).is_ok());
        drop(held);
        assert_eq!(one.count(), 0, "a refused call is not counted");
        assert!(take(&one, 64).is_ok(), "a caller without calls can send one batch of any size");
    }

    /// The runtime runs some of the tasks that are ready between two polls of a test.
    async fn run_all_tasks() {
        for _ in 0..32 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_caller_with_a_long_queue_does_not_delay_another() {
        let (shares, queue) = shares(16, 256);
        let (blaster, bystander) = (Arc::<InFlight>::default(), Arc::<InFlight>::default());
        let wait = |caller: &Arc<InFlight>| {
            let permit = shares.take(&queue, caller, 1).expect("within the share");
            tokio::spawn(async move { permit.turn().await })
        };
        let mut in_flight = Vec::new();
        for _ in 0..16 {
            in_flight.push(wait(&blaster).await.expect("it ends").expect("it starts"));
        }
        let queued: Vec<_> = (0..200).map(|_| wait(&blaster)).collect();
        let mut others: Vec<_> = (0..12).map(|_| wait(&bystander)).collect();
        run_all_tasks().await;
        let finished = |tasks: &[JoinHandle<_>]| tasks.iter().filter(|task| task.is_finished()).count();
        assert_eq!((finished(&others), finished(&queued)), (8, 0), "a few calls of each caller do not wait");
        drop(in_flight);
        run_all_tasks().await;
        assert_eq!((finished(&others), finished(&queued)), (8, 8), "the window is full again");
        for task in others.drain(..8) {
            drop(task.await.expect("it ends").expect("its turn has come"));
        }
        run_all_tasks().await;
        assert_eq!(finished(&others), 4, "they take the place of the caller's own calls");
        queued.into_iter().for_each(|task| task.abort());
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_whose_turn_does_not_come_is_refused_and_leaves_the_queue() {
        let (shares, queue) = shares(1, 256);
        let caller = Arc::<InFlight>::default();
        let (first, second) = (shares.take(&queue, &caller, 9), shares.take(&queue, &caller, 9));
        let (first, second) = (first.expect("within the share"), second.expect("within the share"));
        let turn = first.turn().await.expect("it starts");
        assert_eq!(second.turn().await.map(drop), Err(Overloaded));
        assert_eq!(queue.refused.load(Ordering::Relaxed), 9);
        drop(turn);
        let state = queue.state.lock();
        assert_eq!((state.turns.in_flight(), state.turns.waiting()), (0, 0));
    }

    #[tokio::test]
    async fn no_call_waits_for_a_store_that_does_not_answer_at_all() {
        let (shares, queue) = shares(1, 256);
        let caller = Arc::<InFlight>::default();
        let permits: Vec<_> =
            (0..3).map(|_| shares.take(&queue, &caller, 9).expect("within the share")).collect();
        let _unanswered = permits[0].turn().await.expect("it starts");
        queue.state.lock().progress = Instant::now().checked_sub(2 * DEADLINE).expect("an instant");
        let _passed = permits[1].turn().await.expect("it does not wait");
        assert_eq!(queue.state.lock().turns.in_flight(), 18);
        // A call that is answered shows that the store works.
        drop(permits[2].turn().await.expect("it does not wait"));
        let waiting = timeout(Duration::from_millis(1), permits[2].turn()).await;
        assert!(waiting.is_err(), "it waits for its turn");
    }
}
