//! Opens connections: TCP, TLS, `AUTH` and `SELECT`.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::connection::{CommandConnection, RedisStream};
use crate::store::redis::error::RedisError;
use crate::store::redis::topology::address::Address;
use crate::store::redis::topology::url::{ConnectionOptions, TlsOptions};

/// Connects to servers that share credentials, database and CA certificates.
#[derive(Clone)]
pub(crate) struct Connector {
    options: ConnectionOptions,
    tls: Option<TlsConnector>,
}

impl Connector {
    /// Fails if the CA certificates cannot be read.
    pub(crate) fn new(options: ConnectionOptions) -> io::Result<Connector> {
        let tls = options.tls.as_ref().map(tls_connector).transpose()?;
        Ok(Connector { options, tls })
    }

    /// Connects, authenticates and selects the database. `login_timeout` bounds the authentication and the selection. The
    /// caller bounds the whole.
    pub(crate) async fn connect(
        &self,
        address: &Address,
        login_timeout: Duration,
    ) -> Result<CommandConnection, RedisError> {
        let failed = |source: io::Error| RedisError::Connect {
            address: address.to_string().into(),
            source: Arc::new(source),
        };
        let socket = TcpStream::connect((&*address.host, address.port)).await.map_err(failed)?;
        // Checks are small and a caller waits for each.
        socket.set_nodelay(true).map_err(failed)?;
        let stream = match &self.tls {
            None => RedisStream::Plain(socket),
            Some(tls) => {
                let name = ServerName::try_from(address.host.to_string());
                let name = name.map_err(io::Error::other).map_err(failed)?;
                RedisStream::Tls(Box::new(tls.connect(name, socket).await.map_err(failed)?))
            }
        };
        let mut connection = CommandConnection::new(stream);
        let logged_in = timeout(login_timeout, self.log_in(&mut connection)).await;
        logged_in.unwrap_or_else(|_| Err(failed(io::ErrorKind::TimedOut.into())))?;
        Ok(connection)
    }

    async fn log_in(&self, connection: &mut CommandConnection) -> Result<(), RedisError> {
        let ConnectionOptions { user, password, database, .. } = &self.options;
        if user.is_some() || password.is_some() {
            let user = user.as_deref().unwrap_or("default");
            // A user may need no password.
            let password = password.as_deref().unwrap_or("");
            let arguments = [b"AUTH", user.as_bytes(), password.as_bytes()];
            connection.command(&arguments).await.map_err(|error| redact(error, password))?;
        }
        if *database != 0 {
            connection.command(&[b"SELECT", database.to_string().as_bytes()]).await?;
        }
        Ok(())
    }
}

/// Removes the password from an error reply: a server without `AUTH` repeats the arguments.
fn redact(error: RedisError, password: &str) -> RedisError {
    match error {
        // Servers repeat long arguments only in part.
        RedisError::ErrorReply(reply)
            if reply.contains("args beginning") || !password.is_empty() && reply.contains(password) =>
        {
            let code = reply.split_ascii_whitespace().next().unwrap_or("ERR");
            RedisError::ErrorReply(format!("{code} the server does not accept a password").into())
        }
        other => other,
    }
}

fn tls_connector(options: &TlsOptions) -> io::Result<TlsConnector> {
    let mut roots = RootCertStore::empty();
    let mut native_error = None;
    match &options.ca_file {
        Some(path) => {
            for certificate in CertificateDer::pem_file_iter(path).map_err(io::Error::other)? {
                let certificate = certificate.map_err(io::Error::other)?;
                roots.add(certificate).map_err(io::Error::other)?;
            }
        }
        None => {
            let native = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(native.certs);
            native_error = native.errors.into_iter().next();
        }
    }
    if roots.is_empty() {
        let why = native_error.map(|error| format!(" ({error})")).unwrap_or_default();
        let what = format!("no CA certificate found{why}; name a file of them with ca= in the URL");
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
