//! Reads request bodies: JSON, bounded, and whole before anything is decided.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, StatusCode, header};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use tokio::time::timeout;

use super::error::HttpError;

const BYTES_MAX: usize = 64 * 1024;
/// Bytes of a body that is too large that are read and discarded before the connection is closed, and for how long.
const DROPPED_MAX: usize = 1024 * 1024;
const LINGER: Duration = Duration::from_millis(200);

/// The bytes of a body whose type is JSON. Memory is allocated for received bytes only, and a body that arrives in one
/// piece is not copied.
pub(super) async fn read_json(headers: &HeaderMap, mut body: Incoming) -> Result<Bytes, HttpError> {
    check_is_json(headers)?;
    if body.size_hint().lower() > BYTES_MAX as u64 {
        return Err(too_large(body).await);
    }
    let mut whole = match next(&mut body).await? {
        None => return Ok(Bytes::new()),
        Some(first) if body.is_end_stream() && first.len() <= BYTES_MAX => return Ok(first),
        Some(first) => BytesMut::from(first),
    };
    while let Some(more) = next(&mut body).await? {
        if whole.len() + more.len() > BYTES_MAX {
            return Err(too_large(body).await);
        }
        whole.extend_from_slice(&more);
    }
    Ok(whole.freeze())
}

async fn next(body: &mut Incoming) -> Result<Option<Bytes>, HttpError> {
    while let Some(frame) = body.frame().await {
        let frame = frame
            .map_err(|_| HttpError::bad_request("body-cut-short", "the body ended early; send it whole"))?;
        // Trailers are ignored.
        if let Ok(data) = frame.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

/// Required because a browser sends this type to another site only after a preflight request.
fn check_is_json(headers: &HeaderMap) -> Result<(), HttpError> {
    if headers.contains_key(header::CONTENT_ENCODING) {
        let detail = "compressed bodies are not supported; send it without Content-Encoding";
        return Err(HttpError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "content-encoding", detail));
    }
    let value = headers.get(header::CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
    let essence = value.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii();
    if !essence.eq_ignore_ascii_case(b"application/json") {
        let detail = "the body must be JSON; send Content-Type: application/json";
        return Err(HttpError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "content-type", detail));
    }
    Ok(())
}

/// Discards what is still in flight: a client whose connection is closed while it sends may never read the response.
async fn too_large(mut body: Incoming) -> HttpError {
    let drained = async {
        let mut dropped = 0;
        while let (true, Ok(Some(more))) = (dropped < DROPPED_MAX, next(&mut body).await) {
            dropped += more.len();
        }
    };
    // The deadline holds for a client that announces much and sends little.
    let _drained = timeout(LINGER, drained).await.is_ok();
    let detail = format!("the body exceeds {BYTES_MAX} bytes; send less, or in parts");
    HttpError::new(StatusCode::PAYLOAD_TOO_LARGE, "body-too-large", detail)
}
