//! The faults that can be set, and the numbers of injected faults.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The faults of a proxy. The default is no fault.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Faults {
    /// From the client to the server.
    pub requests: Line,
    /// From the server to the client.
    pub replies: Line,
    /// Probability, from 0 to 1, that a reply is lost: the server has executed the request, and the client's connection is
    /// closed.
    pub lose_reply: f64,
    /// Probability, from 0 to 1, that a reply is cut: the client gets half of its bytes, then a reset. The sum with
    /// `lose_reply` is at most 1.
    pub cut_reply: f64,
    /// Connections stay open, but no bytes pass in either direction. A connection that dropped bytes stays like this when
    /// the fault ends, because its bytes are missing.
    pub half_open: bool,
    /// New connections are refused. Open connections continue.
    pub refuse: bool,
}

/// Delay and rate of one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Line {
    /// Delay of all bytes.
    pub delay: Duration,
    /// Bytes per second. `None` is unlimited.
    pub bytes_per_sec: Option<NonZeroU32>,
}

/// Numbers of events since the proxy was started.
///
/// Refused connections are not counted: the kernel refuses them, and only the client sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Injected {
    /// Connections that reached the server.
    pub connections: u64,
    /// Connections that could not reach the server and were reset.
    pub unreachable: u64,
    /// Chunks of requests that were forwarded to the server.
    pub requests: u64,
    /// Replies of the server, including those that were not delivered.
    pub replies: u64,
    /// Connections that are not RESP2, such as TLS. Each read from the server counts as a reply there.
    pub unreadable: u64,
    /// Chunks of requests that were delayed.
    pub delayed_requests: u64,
    /// Replies that were delayed.
    pub delayed_replies: u64,
    /// Chunks of requests that were slowed down.
    pub slow_requests: u64,
    /// Replies that were slowed down.
    pub slow_replies: u64,
    /// Replies that were lost.
    pub lost_replies: u64,
    /// Replies that were cut.
    pub cut_replies: u64,
    /// Connections that dropped bytes.
    pub half_open: u64,
}

/// An event to count.
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

/// One counter per event.
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
