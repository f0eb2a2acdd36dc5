//! TLS certificates for tests: a certificate authority, and certificates for a server and a client that it signs.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};

use super::error::Error;

/// PEM files: the authority's certificate, and certificates and private keys of a server and a client.
#[derive(Clone, Debug)]
pub struct Certificates {
    authority: PathBuf,
    server: PathBuf,
    key: PathBuf,
    client: PathBuf,
    client_key: PathBuf,
}

impl Certificates {
    /// Creates an authority, a certificate for `localhost` and `127.0.0.1` and one for a client, and writes them into this
    /// folder.
    pub fn generate(folder: &Path) -> Result<Certificates, Error> {
        let authority = authority()?;
        let key = KeyPair::generate()?;
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let server = CertificateParams::new(names)?.signed_by(&key, &authority)?;
        let client_key = KeyPair::generate()?;
        let client = CertificateParams::new(["client".to_owned()])?.signed_by(&client_key, &authority)?;
        Ok(Certificates {
            authority: write(folder, "authority.pem", &authority.pem())?,
            server: write(folder, "server.pem", &server.pem())?,
            key: write(folder, "server.key", &key.serialize_pem())?,
            client: write(folder, "client.pem", &client.pem())?,
            client_key: write(folder, "client.key", &client_key.serialize_pem())?,
        })
    }

    /// Returns the authority's certificate. A client that trusts it trusts the server.
    pub fn authority(&self) -> &Path {
        &self.authority
    }

    /// Returns the server's certificate.
    pub fn server(&self) -> &Path {
        &self.server
    }

    /// Returns the server's private key.
    pub fn key(&self) -> &Path {
        &self.key
    }

    /// Returns the certificate of a client, signed by the authority.
    pub fn client(&self) -> &Path {
        &self.client
    }

    /// Returns the private key of that client.
    pub fn client_key(&self) -> &Path {
        &self.client_key
    }
}

fn authority() -> Result<CertifiedIssuer<'static, KeyPair>, Error> {
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name.push(DnType::CommonName, "Tollgate test authority");
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    Ok(CertifiedIssuer::self_signed(parameters, KeyPair::generate()?)?)
}

fn write(folder: &Path, name: &str, pem: &str) -> Result<PathBuf, Error> {
    let path = folder.join(name);
    fs::write(&path, pem).map_err(Error::io(format!("write {name}")))?;
    Ok(path)
}
