//! The faults that can be set, and the count of those that were injected.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What the proxy does wrong. The default is nothing.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Faults {
    /// From the client to the server.
    pub requests: Line,
    /// From the server to the client.
    pub replies: Line,
    /// The chance, from 0 to 1, that a reply is lost: the server has executed the request, the client sees its
    /// connection closed.
    pub lose_reply: f64,
    /// The chance, from 0 to 1, that a reply is cut: the client gets half of its bytes, then a reset. Together with
    /// `lose_reply` at most 1.
    pub cut_reply: f64,
    /// Connections stay up, and nothing goes through, in neither direction. A connection on which something was
    /// swallowed stays so when the fault is over, because its bytes are missing.
    pub half_open: bool,
    /// Nobody listens any more. Open connections go on.
    pub refuse: bool,
}

/// How slow one direction is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Line {
    /// How much later everything arrives.
    pub delay: Duration,
    /// How many bytes go through per second; any number if None.
    pub bytes_per_sec: Option<NonZeroU32>,
}

/// How often something happened since the proxy was started.
///
/// Refused connections are not counted: the kernel refuses them, and the client is the only one to know.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Injected {
    /// Connections that reached the server.
    pub connections: u64,
    /// Connections that found no server, and were reset.
    pub unreachable: u64,
    /// Pieces of requests that went on to the server.
    pub requests: u64,
    /// Replies that the server gave, whatever became of them.
    pub replies: u64,
    /// Connections that did not speak RESP2, TLS for instance: each read from the server counts as a reply there.
    pub unreadable: u64,
    /// Pieces of requests that were held back.
    pub delayed_requests: u64,
    /// Replies that were held back.
    pub delayed_replies: u64,
    /// Pieces of requests that went through slowly.
    pub slow_requests: u64,
    /// Replies that went through slowly.
    pub slow_replies: u64,
    /// Replies that were lost.
    pub lost_replies: u64,
    /// Replies that were cut.
    pub cut_replies: u64,
    /// Connections on which something was swallowed.
    pub half_open: u64,
}

/// What is counted.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    Connection,
    Unreachable,
    Request,
    Reply,
    Unreadable,
    DelayedRequest,
    DelayedReply,
    SlowRequest,
    SlowReply,
    LostReply,
    CutReply,
    HalfOpen,
}

/// One count per event.
#[derive(Debug, Default)]
pub(super) struct Counts([AtomicU64; Event::HalfOpen as usize + 1]);

impl Counts {
    pub(super) fn add(&self, event: Event) {
        self.0[event as usize].fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn injected(&self) -> Injected {
        let count = |event: Event| self.0[event as usize].load(Ordering::SeqCst);
        Injected {
            connections: count(Event::Connection),
            unreachable: count(Event::Unreachable),
            requests: count(Event::Request),
            replies: count(Event::Reply),
            unreadable: count(Event::Unreadable),
            delayed_requests: count(Event::DelayedRequest),
            delayed_replies: count(Event::DelayedReply),
            slow_requests: count(Event::SlowRequest),
            slow_replies: count(Event::SlowReply),
            lost_replies: count(Event::LostReply),
            cut_replies: count(Event::CutReply),
            half_open: count(Event::HalfOpen),
        }
    }
}
