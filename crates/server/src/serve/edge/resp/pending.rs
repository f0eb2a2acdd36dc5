//! Commands that wait for the store: sent together, so that it gets them as one batch, and answered in their order.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

/// Commands of one connection in flight to the store.
pub(crate) const IN_FLIGHT_MAX: usize = 128;

/// Replies that are not available yet, by their position between those that are.
pub(crate) struct Pending<F> {
    waiting: Vec<Waiting<F>>,
}

struct Waiting<F> {
    call: Pin<Box<F>>,
    /// The position of the reply in the output.
    at: usize,
    is_silent: bool,
    reply: Option<Vec<u8>>,
}

impl<F: Future<Output = Vec<u8>>> Pending<F> {
    pub(crate) const fn new() -> Pending<F> {
        Pending { waiting: Vec::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.waiting.len() >= IN_FLIGHT_MAX
    }

    /// Adds a call whose reply belongs at this position; a silent one gets no reply.
    pub(crate) fn push(&mut self, call: F, at: usize, is_silent: bool) {
        self.waiting.push(Waiting { call: Box::pin(call), at, is_silent, reply: None });
    }

    /// Waits for all replies, and inserts each at its position.
    pub(crate) async fn settle(&mut self, output: &mut Vec<u8>) {
        poll_fn(|cx| {
            let mut missing = false;
            for waiting in self.waiting.iter_mut().filter(|waiting| waiting.reply.is_none()) {
                match waiting.call.as_mut().poll(cx) {
                    Poll::Ready(reply) => waiting.reply = Some(reply),
                    Poll::Pending => missing = true,
                }
            }
            if missing { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
        let Some(first) = self.waiting.first().map(|waiting| waiting.at) else { return };
        let known = output.split_off(first);
        let mut taken = 0;
        for waiting in self.waiting.drain(..) {
            let at = waiting.at - first;
            output.extend_from_slice(&known[taken..at]);
            taken = at;
            if let Some(reply) = waiting.reply.filter(|_| !waiting.is_silent) {
                output.extend_from_slice(&reply);
            }
        }
        output.extend_from_slice(&known[taken..]);
    }
}
