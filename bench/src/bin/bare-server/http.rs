//! HTTP by hyper alone: reads a request to its end and sends a fixed response.

use anyhow::Result;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

const ANSWER: &[u8] = br#"{"allowed":true,"limit":1000000,"remaining":999999,"retry_after_ms":0}"#;

pub(crate) async fn serve(stream: TcpStream) -> Result<()> {
    let service = service_fn(|request: Request<Incoming>| async {
        request.into_body().collect().await?;
        let mut response = Response::new(Full::new(Bytes::from_static(ANSWER)));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok::<_, hyper::Error>(response)
    });
    Ok(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await?)
}
