//! One exchange over one connection: TCP, TLS, HTTP/1.

use std::io;
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use bytes::Bytes;
use http::{HeaderValue, Request, header};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::call::{Answer, Call};
use super::server_url::ServerUrl;
use crate::failure::Failure;

/// The largest answer that is read. Every route of ours answers with less.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Why a server did not answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExchangeError {
    #[error("cannot connect")]
    Connect(#[source] io::Error),
    #[error("TLS failed")]
    Tls(#[source] io::Error),
    #[error("the host is not a name for TLS")]
    Name,
    #[error("the token or the path cannot be sent")]
    Request(#[source] http::Error),
    #[error("the exchange broke off")]
    Http(#[source] hyper::Error),
    #[error("the answer has more than {ANSWER_BYTES_MAX} bytes")]
    TooLong,
    #[error("the answer broke off: {0}")]
    Body(String),
}

/// Sends the call and reads the whole answer. The caller bounds the time. Redirections are not followed: the token belongs to
/// the server that the user named.
pub(super) async fn exchange(
    server: &ServerUrl,
    tls: Option<&TlsConnector>,
    token: Option<&str>,
    call: &Call,
) -> Result<Answer, ExchangeError> {
    let socket = TcpStream::connect((server.host(), server.port())).await.map_err(ExchangeError::Connect)?;
    socket.set_nodelay(true).map_err(ExchangeError::Connect)?;
    let request = request(server, token, call)?;
    match tls.filter(|_| server.has_tls()) {
        None => exchange_over(socket, request).await,
        Some(tls) => {
            let name = ServerName::try_from(server.host().to_owned()).map_err(|_| ExchangeError::Name)?;
            exchange_over(tls.connect(name, socket).await.map_err(ExchangeError::Tls)?, request).await
        }
    }
}

fn request(
    server: &ServerUrl,
    token: Option<&str>,
    call: &Call,
) -> Result<Request<Full<Bytes>>, ExchangeError> {
    let mut request = Request::builder()
        .method(call.method.clone())
        .uri(server.target(&call.target))
        .header(header::HOST, server.authority())
        .header(header::ACCEPT, "application/json")
        .header(header::USER_AGENT, concat!("tollgate/", env!("CARGO_PKG_VERSION")));
    if let Some(token) = token {
        let value = HeaderValue::from_str(&format!("Bearer {token}"));
        let mut value = value.map_err(|error| ExchangeError::Request(error.into()))?;
        value.set_sensitive(true);
        request = request.header(header::AUTHORIZATION, value);
    }
    if let Some(tag) = &call.if_match {
        request = request.header(header::IF_MATCH, tag);
    }
    let body = match &call.body {
        None => Bytes::new(),
        Some(body) => {
            request = request.header(header::CONTENT_TYPE, "application/json");
            Bytes::from(body.to_string())
        }
    };
    request.body(Full::new(body)).map_err(ExchangeError::Request)
}

async fn exchange_over<S>(stream: S, request: Request<Full<Bytes>>) -> Result<Answer, ExchangeError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(ExchangeError::Http)?;
    let exchange = async {
        let response = sender.send_request(request).await.map_err(ExchangeError::Http)?;
        let (parts, body) = response.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await.map_err(|error| {
            if error.is::<LengthLimitError>() {
                ExchangeError::TooLong
            } else {
                ExchangeError::Body(error.to_string())
            }
        })?;
        Ok(Answer { status: parts.status, headers: parts.headers, body: body.to_bytes() })
    };
    // The connection must be driven until the answer is complete; what happens to it later does not matter.
    tokio::pin!(connection);
    tokio::pin!(exchange);
    tokio::select! {
        biased;
        answer = &mut exchange => answer,
        closed = &mut connection => match closed {
            Err(error) => Err(ExchangeError::Http(error)),
            Ok(()) => exchange.await,
        },
    }
}

/// Verifies servers by the certificates in `ca_file`, or by those of the system.
pub(super) fn tls_connector(ca_file: Option<&Path>) -> Result<TlsConnector, Failure> {
    let mut roots = RootCertStore::empty();
    let mut problem = String::new();
    match ca_file {
        Some(path) => {
            if let Err(error) = add_certificates(path, &mut roots) {
                problem = format!(": {error}");
            }
        }
        None => {
            let native = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(native.certs);
            problem = native.errors.first().map_or_else(String::new, |error| format!(": {error}"));
        }
    }
    if roots.is_empty() || ca_file.is_some() && !problem.is_empty() {
        let place = ca_file.map_or_else(|| "this system".to_owned(), |path| path.display().to_string());
        let hint = "pass a file of CA certificates in PEM format with --ca-file";
        return Err(Failure::new(format!("no CA certificate in {place}{problem}"), hint));
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| {
            Failure::new(format!("cannot use TLS: {error}"), "this should not happen; please report it")
        })?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

fn add_certificates(path: &Path, roots: &mut RootCertStore) -> Result<(), Box<dyn std::error::Error>> {
    for certificate in CertificateDer::pem_file_iter(path)? {
        roots.add(certificate?)?;
    }
    Ok(())
}
