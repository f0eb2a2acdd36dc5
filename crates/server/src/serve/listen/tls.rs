//! TLS certificates from files. They can be replaced while connections are open.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

use crate::config::TlsConfig;
use crate::protocol::Protocol;

/// The certificates in force.
pub(crate) struct Tls {
    files: TlsConfig,
    current: ArcSwap<Settings>,
    /// The digest of the files at the last load, and whether clients without a certificate were allowed.
    seen: Mutex<(blake3::Hash, bool)>,
}

struct Settings {
    http: Arc<ServerConfig>,
    resp: Arc<ServerConfig>,
    grpc: Arc<ServerConfig>,
}

impl Tls {
    /// Loads the files. `optional` allows clients without a certificate, because they may send a token instead.
    pub(crate) fn load(files: &TlsConfig, optional: bool) -> Result<Tls> {
        // Before the files are read, so that a later change is noticed.
        let seen = Mutex::new((digest(files), optional));
        let current = ArcSwap::from_pointee(read(files, optional)?);
        Ok(Tls { files: files.clone(), current, seen })
    }

    /// Loads the files again if they have changed, and returns whether they have. If they are invalid, the previous ones
    /// stay in force.
    pub(crate) fn reload(&self, optional: bool) -> Result<bool> {
        let found = (digest(&self.files), optional);
        if std::mem::replace(&mut *self.seen.lock(), found) == found {
            return Ok(false);
        }
        self.current.store(Arc::new(read(&self.files, optional)?));
        Ok(true)
    }

    pub(crate) fn files(&self) -> impl Iterator<Item = &Path> {
        paths(&self.files)
    }

    pub(crate) fn acceptor(&self, protocol: Protocol) -> TlsAcceptor {
        let current = self.current.load();
        TlsAcceptor::from(Arc::clone(match protocol {
            Protocol::Http | Protocol::Admin => &current.http,
            Protocol::Resp => &current.resp,
            Protocol::Grpc => &current.grpc,
        }))
    }
}

fn paths(files: &TlsConfig) -> impl Iterator<Item = &Path> {
    let TlsConfig { certificate, key, client_ca } = files;
    [Some(certificate), Some(key), client_ca.as_ref()].into_iter().flatten().map(|path| path.as_path())
}

/// The digest of the contents. An unreadable file counts as empty; its error is reported when it is loaded.
fn digest(files: &TlsConfig) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    for path in paths(files) {
        let bytes = std::fs::read(path).unwrap_or_default();
        hasher.update(&(bytes.len() as u64).to_le_bytes()).update(&bytes);
    }
    hasher.finalize()
}

fn read(files: &TlsConfig, optional: bool) -> Result<Settings> {
    let chain = certificates(&files.certificate)?;
    let key = PrivateKeyDer::from_pem_file(&files.key)
        .with_context(|| format!("cannot read a private key in PEM from {}", files.key.display()))?;
    let builder =
        ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(path)? {
                roots.add(certificate).with_context(|| format!("in {}", path.display()))?;
            }
            let verifier = WebPkiClientVerifier::builder(Arc::new(roots));
            let verifier = if optional { verifier.allow_unauthenticated() } else { verifier };
            builder.with_client_cert_verifier(verifier.build()?)
        }
    };
    let resp = builder
        .with_single_cert(chain, key)
        .with_context(|| format!("{} does not match {}", files.key.display(), files.certificate.display()))?;
    let mut http = resp.clone();
    http.alpn_protocols = vec![b"http/1.1".to_vec()];
    let mut grpc = resp.clone();
    grpc.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Settings { http: Arc::new(http), resp: Arc::new(resp), grpc: Arc::new(grpc) })
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let certificates: Vec<_> = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .with_context(|| format!("cannot read certificates in PEM from {}", path.display()))?;
    if certificates.is_empty() {
        bail!("no certificate in PEM in {}", path.display());
    }
    Ok(certificates)
}
