//! The body of a response: one piece, or server-sent events until the server shuts down.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::Stream;
use futures_util::stream::unfold;
use http_body_util::Full;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio_util::sync::CancellationToken;

/// The body of a response.
pub(super) enum ResponseBody {
    Full(Full<Bytes>),
    Events(EventStream),
}

/// Events, the newest only: a client that reads slowly misses some, and takes no memory.
pub(super) struct EventStream(Pin<Box<dyn Stream<Item = Bytes> + Send>>);

impl EventStream {
    /// Sends `first`, then each new event. `place` is given back when the client leaves.
    pub(super) fn new(
        first: Bytes,
        events: watch::Receiver<Bytes>,
        place: OwnedSemaphorePermit,
        ending: CancellationToken,
    ) -> EventStream {
        let state = (Some(first), events, place, ending);
        EventStream(Box::pin(unfold(state, |(first, mut events, place, ending)| async move {
            if let Some(first) = first {
                return Some((first, (None, events, place, ending)));
            }
            tokio::select! {
                () = ending.cancelled() => return None,
                changed = events.changed() => changed.ok()?,
            }
            let event = events.borrow_and_update().clone();
            Some((event, (None, events, place, ending)))
        })))
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            ResponseBody::Full(full) => Pin::new(full).poll_frame(context),
            ResponseBody::Events(EventStream(events)) => {
                events.as_mut().poll_next(context).map(|event| event.map(|event| Ok(Frame::data(event))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            ResponseBody::Full(full) => full.is_end_stream(),
            ResponseBody::Events(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            ResponseBody::Full(full) => full.size_hint(),
            ResponseBody::Events(_) => SizeHint::default(),
        }
    }
}
