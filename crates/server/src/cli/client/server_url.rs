//! The address of a server.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use http::Uri;
use http::uri::Scheme;

/// A server: scheme, host, port, and the path before the routes, if a proxy adds one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ServerUrl {
    tls: bool,
    host: String,
    port: u16,
    /// Without a slash at its end.
    path: String,
}

/// The text is not the address of a server. The error does not repeat it: it may hold a secret.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum ServerUrlError {
    #[error("not a URL: write http://HOST:PORT or https://HOST:PORT")]
    NotUrl,
    #[error("the URL has a user or a password: pass a token with --token-file or TOLLGATE_TOKEN instead")]
    HasUser,
    #[error(
        "the URL has a query: write http://HOST:PORT only, and pass a token with --token-file or TOLLGATE_TOKEN"
    )]
    HasQuery,
}

impl ServerUrl {
    pub(crate) const fn has_tls(&self) -> bool {
        self.tls
    }

    pub(super) fn host(&self) -> &str {
        self.host.trim_start_matches('[').trim_end_matches(']')
    }

    pub(super) const fn port(&self) -> u16 {
        self.port
    }

    /// Host and port, as the header field `Host` has them.
    pub(super) fn authority(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// The path of a route on this server.
    pub(super) fn target(&self, route: &str) -> String {
        format!("{}{route}", self.path)
    }

    /// Whether others on the network can read what is sent.
    pub(super) fn exposes_secrets(&self) -> bool {
        let is_here = self.host().eq_ignore_ascii_case("localhost")
            || self.host().parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback());
        !self.tls && !is_here
    }
}

impl FromStr for ServerUrl {
    type Err = ServerUrlError;

    fn from_str(text: &str) -> Result<ServerUrl, ServerUrlError> {
        let uri: Uri = text.trim().parse().map_err(|_| ServerUrlError::NotUrl)?;
        let tls = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTP => false,
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            _ => return Err(ServerUrlError::NotUrl),
        };
        let authority = uri.authority().ok_or(ServerUrlError::NotUrl)?;
        if authority.as_str().contains('@') {
            return Err(ServerUrlError::HasUser);
        }
        if uri.query().is_some() {
            return Err(ServerUrlError::HasQuery);
        }
        let has_port = authority.as_str().rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
        let port = match uri.port_u16() {
            Some(port) => port,
            None if has_port => return Err(ServerUrlError::NotUrl),
            None if tls => 443,
            None => 80,
        };
        let host = authority.host();
        if host.is_empty() || port == 0 {
            return Err(ServerUrlError::NotUrl);
        }
        let path = uri.path().trim_end_matches('/').to_owned();
        Ok(ServerUrl { tls, host: host.to_owned(), port, path })
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        write!(f, "{scheme}://{}:{}{}", self.host, self.port, self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_secrets_in_them_are_refused() {
        for (text, shown, target) in [
            ("http://localhost:8080", "http://localhost:8080", "/v1/top"),
            ("https://gate.example.com", "https://gate.example.com:443", "/v1/top"),
            ("http://gate.example.com/", "http://gate.example.com:80", "/v1/top"),
            ("http://[::1]:9000/gate/", "http://[::1]:9000/gate", "/gate/v1/top"),
        ] {
            let url: ServerUrl = text.parse().expect(text);
            assert_eq!((url.to_string().as_str(), url.target("/v1/top").as_str()), (shown, target));
        }
        for (text, error) in [
            ("localhost:8080", ServerUrlError::NotUrl),
            ("", ServerUrlError::NotUrl),
            ("redis://localhost", ServerUrlError::NotUrl),
            ("http://localhost:99999", ServerUrlError::NotUrl),
            ("http://localhost:0", ServerUrlError::NotUrl),
            ("http://user:secret@localhost", ServerUrlError::HasUser),
            ("http://localhost/?token=secret", ServerUrlError::HasQuery),
        ] {
            let found = text.parse::<ServerUrl>().expect_err(text);
            assert_eq!(found, error, "{text}");
            assert!(!found.to_string().contains("secret"));
        }
    }

    #[test]
    fn a_token_is_exposed_only_without_tls_and_beyond_this_machine() {
        for (text, exposed) in [
            ("http://localhost:8080", false),
            ("http://127.8.0.1", false),
            ("http://[::1]:80", false),
            ("https://gate.example.com", false),
            ("http://gate.example.com", true),
            ("http://10.0.0.5:9000", true),
        ] {
            assert_eq!(text.parse::<ServerUrl>().expect(text).exposes_secrets(), exposed, "{text}");
        }
    }
}
