//! One connection to Redis: made, let in, and ready for commands.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::store::redis::error::RedisError;
use crate::store::redis::protocol::reply::{self, Reply};
use crate::store::redis::topology::target::{Access, Address, Tls};

/// Bytes to and from Redis.
#[derive(Debug)]
pub(crate) enum Connection {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// How to get into servers of one sort.
#[derive(Clone)]
pub(crate) struct Door {
    access: Access,
    trusted: Option<TlsConnector>,
}

impl Door {
    /// Fails if the certificates to trust cannot be read.
    pub(crate) fn new(access: Access) -> io::Result<Door> {
        let trusted = access.tls.as_ref().map(trust).transpose()?;
        Ok(Door { access, trusted })
    }

    /// Connects, authenticates and selects the database. A server that says nothing for longer than `patience` once there
    /// is a connection does not answer.
    pub(crate) async fn enter(&self, address: &Address, patience: Duration) -> Result<Dialogue, RedisError> {
        let failed = |source: io::Error| RedisError::Connect {
            address: address.to_string().into(),
            source: Arc::new(source),
        };
        let socket = TcpStream::connect((&*address.host, address.port)).await.map_err(failed)?;
        // A check is small and waited for.
        socket.set_nodelay(true).map_err(failed)?;
        let connection = match &self.trusted {
            None => Connection::Plain(socket),
            Some(trusted) => {
                let name = ServerName::try_from(address.host.to_string());
                let name = name.map_err(io::Error::other).map_err(failed)?;
                Connection::Tls(Box::new(trusted.connect(name, socket).await.map_err(failed)?))
            }
        };
        let mut dialogue = Dialogue { connection, inbox: Vec::new(), heard: 0 };
        let greeted = timeout(patience, self.greet(&mut dialogue)).await;
        greeted.unwrap_or_else(|_| Err(failed(io::ErrorKind::TimedOut.into())))?;
        Ok(dialogue)
    }

    async fn greet(&self, dialogue: &mut Dialogue) -> Result<(), RedisError> {
        let Access { user, password, database, .. } = &self.access;
        if user.is_some() || password.is_some() {
            let user = user.as_deref().unwrap_or("default");
            // A user may need no password.
            let password = password.as_deref().unwrap_or("");
            let words = [b"AUTH", user.as_bytes(), password.as_bytes()];
            dialogue.ask(&words).await.map_err(|error| unsaid(error, password))?;
        }
        if *database != 0 {
            dialogue.ask(&[b"SELECT", database.to_string().as_bytes()]).await?;
        }
        Ok(())
    }
}

/// The error without the password: a server that knows no AUTH repeats its words.
fn unsaid(error: RedisError, password: &str) -> RedisError {
    match error {
        // Long ones are repeated in part.
        RedisError::Refused(answer)
            if answer.contains("args beginning") || !password.is_empty() && answer.contains(password) =>
        {
            let word = answer.split_ascii_whitespace().next().unwrap_or("ERR");
            RedisError::Refused(format!("{word} the server does not take the password").into())
        }
        other => other,
    }
}

/// A connection on which one thing is said at a time.
#[derive(Debug)]
pub(crate) struct Dialogue {
    connection: Connection,
    inbox: Vec<u8>,
    /// How much of the inbox was the last answer.
    heard: usize,
}

impl Dialogue {
    /// A command and its answer. An error of the server is an error.
    pub(crate) async fn ask(&mut self, words: &[&[u8]]) -> Result<Reply<'_>, RedisError> {
        let mut out = Vec::new();
        reply::command(&mut out, words);
        self.say(&out).await?;
        match self.hear().await? {
            Reply::Error(answer) => Err(RedisError::Refused(answer)),
            reply => Ok(reply),
        }
    }

    /// Sends bytes.
    pub(crate) async fn say(&mut self, bytes: &[u8]) -> Result<(), RedisError> {
        self.connection.write_all(bytes).await?;
        self.connection.flush().await?;
        Ok(())
    }

    /// The next answer. Nothing is lost if whoever waits for it gives up.
    pub(crate) async fn hear(&mut self) -> Result<Reply<'_>, RedisError> {
        self.inbox.drain(..std::mem::take(&mut self.heard));
        while reply::parse(&self.inbox)?.is_none() {
            if self.connection.read_buf(&mut self.inbox).await? == 0 {
                return Err(RedisError::Lost(None));
            }
        }
        let (reply, length) = reply::parse(&self.inbox)?.ok_or(RedisError::Nonsense("an answer vanished"))?;
        self.heard = length;
        Ok(reply)
    }

    /// The connection, for whoever says many things at once.
    pub(crate) fn into_connection(self) -> Connection {
        self.connection
    }
}

/// Whom TLS trusts.
fn trust(tls: &Tls) -> io::Result<TlsConnector> {
    let mut roots = RootCertStore::empty();
    let mut trouble = None;
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
            trouble = found.errors.into_iter().next();
        }
    }
    if roots.is_empty() {
        let why = trouble.map(|error| format!(" ({error})")).unwrap_or_default();
        let what = format!("no certificate to trust{why}; name a file of them with ca= in the URL");
        return Err(io::Error::other(what));
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
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
