//! Futures on virtual time, in one thread. Nothing waits in real time.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use tollgate_core::{Span, Time};

/// The virtual time. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct VirtualTime {
    timers: Arc<Mutex<Timers>>,
}

#[derive(Debug)]
struct Timers {
    now: Time,
    /// By instant, then in the order in which they were set.
    waiting: BTreeMap<(Time, u64), Waker>,
    set: u64,
}

impl VirtualTime {
    pub(super) fn starting_at(now: Time) -> VirtualTime {
        let timers = Timers { now, waiting: BTreeMap::new(), set: 0 };
        VirtualTime { timers: Arc::new(Mutex::new(timers)) }
    }

    pub(super) fn now(&self) -> Time {
        self.lock().now
    }

    /// Waits for this long.
    pub(super) fn sleep(&self, span: Span) -> Sleep {
        Sleep { until: self.now().plus(span), time: self.clone() }
    }

    /// Moves to `now` and wakes the tasks whose timers have ended.
    fn move_to(&self, now: Time) {
        let mut timers = self.lock();
        timers.now = now;
        let later = timers.waiting.split_off(&(now.plus(Span::from_us(1)), 0));
        let ended = std::mem::replace(&mut timers.waiting, later);
        drop(timers);
        ended.into_values().for_each(Waker::wake);
    }

    fn next_timer(&self) -> Option<Time> {
        self.lock().waiting.first_key_value().map(|((at, _), _)| *at)
    }

    fn lock(&self) -> MutexGuard<'_, Timers> {
        self.timers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A wait in virtual time.
pub(super) struct Sleep {
    until: Time,
    time: VirtualTime,
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut timers = self.time.lock();
        if timers.now >= self.until {
            return Poll::Ready(());
        }
        timers.set += 1;
        let number = timers.set;
        timers.waiting.insert((self.until, number), context.waker().clone());
        Poll::Pending
    }
}

/// Runs tasks one at a time, in the order in which they were started.
pub(super) struct Executor {
    time: VirtualTime,
    tasks: Vec<Task>,
}

struct Task {
    future: Pin<Box<dyn Future<Output = ()>>>,
    woken: Arc<Woken>,
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Executor {
    pub(super) fn new(time: VirtualTime) -> Executor {
        Executor { time, tasks: Vec::new() }
    }

    pub(super) fn spawn(&mut self, future: impl Future<Output = ()> + 'static) {
        let woken = Arc::new(Woken(AtomicBool::new(true)));
        self.tasks.push(Task { future: Box::pin(future), woken });
        self.poll_woken();
    }

    /// Runs all tasks up to this instant.
    pub(super) fn run_until(&mut self, until: Time) {
        while let Some(next) = self.time.next_timer().filter(|next| *next <= until) {
            self.time.move_to(next);
            self.poll_woken();
        }
        self.time.move_to(until);
    }

    /// Number of tasks that have not ended.
    pub(super) fn running(&self) -> usize {
        self.tasks.len()
    }

    fn poll_woken(&mut self) {
        self.tasks.retain_mut(|task| {
            if !task.woken.0.swap(false, Ordering::Relaxed) {
                return true;
            }
            let waker = Waker::from(Arc::clone(&task.woken));
            task.future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_continue_in_the_order_of_their_timers() {
        let time = VirtualTime::starting_at(Time::from_us(1_000));
        let mut executor = Executor::new(time.clone());
        let order = Arc::new(Mutex::new(Vec::new()));
        for ms in [30_u64, 10, 20] {
            let (time, order) = (time.clone(), Arc::clone(&order));
            executor.spawn(async move {
                time.sleep(Span::from_ms(ms)).await;
                order.lock().unwrap().push((ms, time.now().us()));
            });
        }
        executor.run_until(Time::from_us(21_000));
        assert_eq!(*order.lock().unwrap(), [(10, 11_000), (20, 21_000)]);
        assert_eq!((executor.running(), time.now().us()), (1, 21_000));
    }
}
