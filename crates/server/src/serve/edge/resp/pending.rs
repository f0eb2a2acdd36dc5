//! Commands that wait for the store: asked together, so that it gets them in one go, and answered in their order.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

/// The most commands of one connection that are asked at once.
pub(crate) const TOGETHER_MAX: usize = 128;

/// Answers that are not there yet, by where they belong between those that are.
pub(crate) struct Pending<F> {
    waiting: Vec<Waiting<F>>,
}

struct Waiting<F> {
    asking: Pin<Box<F>>,
    /// Where in the output the answer belongs.
    at: usize,
    unheard: bool,
    answer: Option<Vec<u8>>,
}

impl<F: Future<Output = Vec<u8>>> Pending<F> {
    pub(crate) const fn new() -> Pending<F> {
        Pending { waiting: Vec::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.waiting.len() >= TOGETHER_MAX
    }

    pub(crate) fn push(&mut self, asking: F, at: usize, unheard: bool) {
        self.waiting.push(Waiting { asking: Box::pin(asking), at, unheard, answer: None });
    }

    /// Waits for all answers, and puts each where it belongs.
    pub(crate) async fn settle(&mut self, output: &mut Vec<u8>) {
        poll_fn(|cx| {
            let mut missing = false;
            for waiting in self.waiting.iter_mut().filter(|waiting| waiting.answer.is_none()) {
                match waiting.asking.as_mut().poll(cx) {
                    Poll::Ready(answer) => waiting.answer = Some(answer),
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
            if let Some(answer) = waiting.answer.filter(|_| !waiting.unheard) {
                output.extend_from_slice(&answer);
            }
        }
        output.extend_from_slice(&known[taken..]);
    }
}
