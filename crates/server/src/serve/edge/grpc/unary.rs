//! Unary calls: one message in, one message out, without the streams of a general gRPC server. A check itself is so cheap
//! that a general server would dominate its cost.

use std::convert::Infallible;
use std::future::poll_fn;
use std::ops::Range;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, header};
use http_body_util::BodyExt;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use prost::Message;
use tokio::time::timeout;
use tonic::Status;
use tonic::body::Body;

/// Bytes before a message: the compression flag and the length.
const HEAD: usize = 5;
/// How long a message may take to arrive.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(5);

/// The message of a call; `None` if it has more than `bytes_max` bytes.
pub(super) async fn receive<M>(body: Incoming, bytes_max: usize) -> Result<Option<M>, Status>
where
    M: Message + Default,
{
    let mut whole = pin!(collect(body, bytes_max));
    // Usually it has arrived already, and no timer is needed.
    let found = match poll_fn(|cx| Poll::Ready(whole.as_mut().poll(cx))).await {
        Poll::Ready(found) => found,
        Poll::Pending => match timeout(MESSAGE_TIMEOUT, whole).await {
            Ok(found) => found,
            Err(_) => Err(Status::deadline_exceeded("the message took too long")),
        },
    }?;
    let wrong = |error: prost::DecodeError| Status::invalid_argument(error.to_string());
    found.map(|bytes| M::decode(bytes).map_err(wrong)).transpose()
}

/// The bytes of the first message. Further data is ignored, but the end of the stream is awaited: a client that ends it in
/// a separate frame would otherwise send on a closed stream, and too many of those close the connection.
async fn collect(mut body: Incoming, bytes_max: usize) -> Result<Option<Bytes>, Status> {
    let message = first(&mut body, bytes_max).await?;
    let mut unread = bytes_max;
    while message.is_some() && !body.is_end_stream() {
        let Some(frame) = body.frame().await else { break };
        let frame = frame.map_err(|error| Status::cancelled(error.to_string()))?;
        let Some(left) = unread.checked_sub(frame.data_ref().map_or(0, Bytes::len)) else { break };
        unread = left;
    }
    Ok(message)
}

async fn first(body: &mut Incoming, bytes_max: usize) -> Result<Option<Bytes>, Status> {
    // Stays empty if the message arrives in one piece, as almost all do.
    let mut gathered = BytesMut::new();
    while let Some(frame) = body.frame().await {
        // Usually the client has disconnected.
        let frame = frame.map_err(|error| Status::cancelled(error.to_string()))?;
        let Ok(data) = frame.into_data() else { continue };
        let in_one_piece = gathered.is_empty();
        if !in_one_piece {
            gathered.extend_from_slice(&data);
        }
        match cut(if in_one_piece { &data } else { &gathered }, bytes_max)? {
            Cut::Message(span) if in_one_piece => return Ok(Some(data.slice(span))),
            Cut::Message(span) => return Ok(Some(gathered.freeze().slice(span))),
            Cut::TooLarge => return Ok(None),
            Cut::Part if in_one_piece => gathered.extend_from_slice(&data),
            Cut::Part => (),
        }
    }
    let why = if gathered.is_empty() { "the call has no message" } else { "the message is incomplete" };
    Err(Status::invalid_argument(why))
}

#[derive(Debug, PartialEq, Eq)]
enum Cut {
    /// Its position in the bytes.
    Message(Range<usize>),
    /// More bytes are needed.
    Part,
    TooLarge,
}

fn cut(bytes: &[u8], bytes_max: usize) -> Result<Cut, Status> {
    let Some(mut head) = bytes.get(..HEAD) else { return Ok(Cut::Part) };
    if head.get_u8() != 0 {
        return Err(Status::unimplemented("compressed messages are not supported; send them uncompressed"));
    }
    let len = head.get_u32() as usize;
    if len > bytes_max {
        return Ok(Cut::TooLarge);
    }
    let span = HEAD..HEAD + len;
    Ok(if bytes.len() >= span.end { Cut::Message(span) } else { Cut::Part })
}

/// The response of a successful call.
pub(super) fn response(message: &impl Message) -> http::Response<Body> {
    let len = message.encoded_len();
    let mut bytes = BytesMut::with_capacity(HEAD + len);
    bytes.put_u8(0);
    bytes.put_u32(len as u32);
    // The buffer has room for it.
    let written = message.encode(&mut bytes);
    debug_assert!(written.is_ok());
    let mut response =
        http::Response::new(Body::new(UnaryBody { data: Some(bytes.freeze()), is_over: false }));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

/// One message and the trailer of success.
struct UnaryBody {
    data: Option<Bytes>,
    is_over: bool,
}

impl HttpBody for UnaryBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(data) = self.data.take() {
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        if std::mem::replace(&mut self.is_over, true) {
            return Poll::Ready(None);
        }
        let mut trailers = HeaderMap::with_capacity(1);
        trailers.insert("grpc-status", HeaderValue::from_static("0"));
        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.is_over
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.data.as_ref().map_or(0, |data| data.len() as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_found_once_it_is_complete() {
        let whole = [0, 0, 0, 0, 3, 7, 8, 9, 1, 2];
        for len in 0..8 {
            assert_eq!(cut(&whole[..len], 3).expect("no error"), Cut::Part, "{len}");
        }
        for len in 8..=10 {
            assert_eq!(cut(&whole[..len], 3).expect("no error"), Cut::Message(5..8), "{len}");
        }
        // The length alone decides.
        assert_eq!(cut(&whole[..5], 2).expect("no error"), Cut::TooLarge);
        assert_eq!(cut(&[1, 0, 0, 0, 0], 3).expect_err("an error").code(), tonic::Code::Unimplemented);
    }
}
