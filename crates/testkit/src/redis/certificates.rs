//! Certificates for a server with TLS: an authority of the test's own, and a server and a client it vouches for.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};

use super::error::Error;

/// Files in PEM: who vouches, for whom, and the key that proves it.
#[derive(Clone, Debug)]
pub struct Certificates {
    authority: PathBuf,
    server: PathBuf,
    key: PathBuf,
    client: PathBuf,
    client_key: PathBuf,
}

impl Certificates {
    /// Makes an authority, a certificate for `localhost` and `127.0.0.1` and one for a client, and writes them into this
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

    /// The certificate of the authority: who trusts it trusts the server.
    pub fn authority(&self) -> &Path {
        &self.authority
    }

    /// The certificate of the server.
    pub fn server(&self) -> &Path {
        &self.server
    }

    /// The private key of the server.
    pub fn key(&self) -> &Path {
        &self.key
    }

    /// The certificate of a client that the authority vouches for too.
    pub fn client(&self) -> &Path {
        &self.client
    }

    /// The private key of that client.
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
