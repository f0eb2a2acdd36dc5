//! One connection to Redis: made, let in, and ready for commands.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::error::RedisError;
use super::reply::{self, Reply};
use super::target::{Target, Tls};

/// Bytes to and from Redis.
#[derive(Debug)]
pub(super) enum Connection {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// Connects, authenticates and selects the database.
pub(super) async fn dial(target: &Target, trusted: Option<&TlsConnector>) -> Result<Connection, RedisError> {
    let failed = |source: io::Error| RedisError::Connect {
        address: target.address().into(),
        source: Arc::new(source),
    };
    let socket = TcpStream::connect((target.host.as_str(), target.port)).await.map_err(failed)?;
    // A check is small and waited for.
    socket.set_nodelay(true).map_err(failed)?;
    let mut connection = match trusted {
        None => Connection::Plain(socket),
        Some(trusted) => {
            let name = ServerName::try_from(target.host.clone()).map_err(io::Error::other).map_err(failed)?;
            Connection::Tls(Box::new(trusted.connect(name, socket).await.map_err(failed)?))
        }
    };
    if target.user.is_some() || target.password.is_some() {
        let user = target.user.as_deref().unwrap_or("default");
        // A user may need no password.
        let password = target.password.as_deref().unwrap_or("");
        ask(&mut connection, &["AUTH", user, password]).await.map_err(|error| unsaid(error, password))?;
    }
    if target.database != 0 {
        ask(&mut connection, &["SELECT", &target.database.to_string()]).await?;
    }
    Ok(connection)
}

/// The error without the password: a server that knows no AUTH repeats its words.
fn unsaid(error: RedisError, password: &str) -> RedisError {
    match error {
        RedisError::Refused(answer) if !password.is_empty() && answer.contains(password) => {
            let word = answer.split_ascii_whitespace().next().unwrap_or("ERR");
            RedisError::Refused(format!("{word} the server does not take the password").into())
        }
        other => other,
    }
}

/// Whom TLS trusts.
pub(super) fn trust(tls: &Tls) -> io::Result<TlsConnector> {
    let mut roots = RootCertStore::empty();
    match &tls.authority {
        Some(path) => {
            for certificate in CertificateDer::pem_file_iter(path).map_err(io::Error::other)? {
                let certificate = certificate.map_err(io::Error::other)?;
                roots.add(certificate).map_err(io::Error::other)?;
            }
        }
        None => {
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
        }
    }
    if roots.is_empty() {
        return Err(io::Error::other("no certificate to trust; name a file of them with ca= in the URL"));
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// One command while nothing else is under way.
async fn ask(connection: &mut Connection, command: &[&str]) -> Result<(), RedisError> {
    let lost = |error: io::Error| RedisError::Lost(Some(Arc::new(error)));
    let mut out = Vec::new();
    reply::words(&mut out, command.len());
    command.iter().for_each(|word| reply::word(&mut out, word.as_bytes()));
    connection.write_all(&out).await.map_err(lost)?;
    connection.flush().await.map_err(lost)?;
    let mut inbox = Vec::with_capacity(256);
    loop {
        match reply::parse(&inbox)? {
            Some((Reply::Value(_), _)) => return Ok(()),
            Some((Reply::Error(answer), _)) => return Err(RedisError::Refused(answer)),
            None => (),
        }
        if connection.read_buf(&mut inbox).await.map_err(lost)? == 0 {
            return Err(RedisError::Lost(None));
        }
    }
}

macro_rules! either {
    ($self:ident, $method:ident $(, $argument:ident)*) => {
        match $self.get_mut() {
            Connection::Plain(socket) => Pin::new(socket).$method($($argument),*),
            Connection::Tls(stream) => Pin::new(stream.as_mut()).$method($($argument),*),
        }
    };
}

impl AsyncRead for Connection {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        either!(self, poll_read, cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        either!(self, poll_write, cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, poll_flush, cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, poll_shutdown, cx)
    }
}
