//! Bodies: JSON, small, and read to their end before anything is decided.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, StatusCode, header};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use tokio::time::timeout;

use super::complaint::Complaint;

const BYTES_MAX: usize = 64 * 1024;
/// How much of a body that is too large is thrown away before it is cut off, and for how long.
const DROPPED_MAX: usize = 1024 * 1024;
const LINGER: Duration = Duration::from_millis(200);

/// The bytes of a body that says it is JSON. Nothing is set aside for what has not arrived, and what arrives in one
/// piece, as almost every body does, is not copied.
pub(super) async fn read_json(headers: &HeaderMap, mut body: Incoming) -> Result<Bytes, Complaint> {
    says_json(headers)?;
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

async fn next(body: &mut Incoming) -> Result<Option<Bytes>, Complaint> {
    while let Some(frame) = body.frame().await {
        let frame =
            frame.map_err(|_| Complaint::bad("body-cut-short", "the body ended early; send it whole"))?;
        // Trailers say nothing here.
        if let Ok(data) = frame.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

/// Demanded, because no page in a browser can send it to another site without being asked first.
fn says_json(headers: &HeaderMap) -> Result<(), Complaint> {
    if headers.contains_key(header::CONTENT_ENCODING) {
        let detail = "compressed bodies are not read; send it without Content-Encoding";
        return Err(Complaint::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "content-encoding", detail));
    }
    let value = headers.get(header::CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
    let essence = value.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii();
    if !essence.eq_ignore_ascii_case(b"application/json") {
        let detail = "the body must be JSON, and say so: Content-Type: application/json";
        return Err(Complaint::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "content-type", detail));
    }
    Ok(())
}

/// Whoever is cut off while it still sends may never see why, so what is on its way is taken and thrown away.
async fn too_large(mut body: Incoming) -> Complaint {
    let drained = async {
        let mut dropped = 0;
        while let (true, Ok(Some(more))) = (dropped < DROPPED_MAX, next(&mut body).await) {
            dropped += more.len();
        }
    };
    // Whoever announces much and sends little is not waited for.
    let _all_or_enough = timeout(LINGER, drained).await.is_ok();
    let detail = format!("a body may have {BYTES_MAX} bytes; send less, or in parts");
    Complaint::new(StatusCode::PAYLOAD_TOO_LARGE, "body-too-large", detail)
}
