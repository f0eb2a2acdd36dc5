//! The turn of a connection: how many requests are answered before other connections of its thread are served.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;
use tokio::task::yield_now;

/// Requests of one turn. A batch of checks is a whole turn.
pub(super) const REQUESTS_MAX: u32 = 4;

/// The turns of one connection.
#[derive(Default)]
pub(super) struct Turns {
    /// Requests that were answered in this turn.
    requests: AtomicU32,
    others: Arc<OthersServed>,
}

/// Woken when the runtime has looked for events of all connections and has run the tasks that were ready.
#[derive(Default)]
struct OthersServed {
    is_served: AtomicBool,
    connection: AtomicWaker,
}

impl Wake for OthersServed {
    fn wake(self: Arc<OthersServed>) {
        self.is_served.store(true, Ordering::Release);
        self.connection.wake();
    }
}

impl Turns {
    /// Counts answered requests. The last ones of a turn return in the next turn.
    pub(super) async fn answered(&self, requests: u32) {
        self.requests.fetch_add(requests, Ordering::Relaxed);
        poll_fn(|_| if self.is_over() { Poll::Pending } else { Poll::Ready(()) }).await;
    }

    fn is_over(&self) -> bool {
        self.requests.load(Ordering::Relaxed) >= REQUESTS_MAX
    }

    /// Serves the connection in turns.
    ///
    /// It would not be enough to yield where the requests are counted: hyper polls a request again, and wakes its own task,
    /// before the runtime has looked for other events.
    pub(super) async fn run<F: Future>(&self, connection: F) -> F::Output {
        let mut connection = pin!(connection);
        let others_waker = Waker::from(Arc::clone(&self.others));
        let mut is_waiting = false;
        poll_fn(|cx| {
            loop {
                if self.is_over() {
                    self.others.connection.register(cx.waker());
                    if !std::mem::replace(&mut is_waiting, true) {
                        let is_ready =
                            pin!(yield_now()).poll(&mut Context::from_waker(&others_waker)).is_ready();
                        self.others.is_served.fetch_or(is_ready, Ordering::Relaxed);
                    }
                    if !self.others.is_served.swap(false, Ordering::Acquire) {
                        return Poll::Pending;
                    }
                    is_waiting = false;
                    self.requests.store(0, Ordering::Relaxed);
                }
                match connection.as_mut().poll(cx) {
                    Poll::Pending if self.is_over() => (),
                    polled => return polled,
                }
            }
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_turn_ends_although_the_connection_wakes_itself() {
        let answered = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&answered);
        let connection = tokio::spawn(async move {
            let turns = Turns::default();
            let requests = async {
                for _ in 0..4 * REQUESTS_MAX {
                    turns.answered(1).await;
                    count.fetch_add(1, Ordering::Relaxed);
                }
            };
            let mut requests = pin!(requests);
            // As hyper does.
            let eager = poll_fn(|cx| {
                cx.waker().wake_by_ref();
                match requests.as_mut().poll(cx) {
                    Poll::Pending => requests.as_mut().poll(cx),
                    ready => ready,
                }
            });
            turns.run(eager).await;
        });
        for turn in 1..=3 {
            yield_now().await;
            assert_eq!(answered.load(Ordering::Relaxed), turn * REQUESTS_MAX - 1);
        }
        connection.await.expect("it ends");
        assert_eq!(answered.load(Ordering::Relaxed), 4 * REQUESTS_MAX);
    }
}
