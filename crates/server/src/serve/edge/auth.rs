//! Authentication and authorisation of callers. They are the same on every transport.

use std::net::IpAddr;

use crate::access::{Access, Digest, Scopes};

/// Who may do what. Replaced as a whole when the configuration is read again.
pub(crate) struct AccessPolicy {
    pub(crate) tokens: Access,
    /// What callers without a token may do.
    pub(crate) anonymous: Scopes,
    /// What callers with a certificate may do in addition.
    pub(crate) certified: Scopes,
}

/// The other end of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    /// The address of the client: that of the connection, or the one in the PROXY protocol header of a trusted load balancer.
    pub(crate) address: IpAddr,
    /// Whether it has sent a certificate that `tls_client_ca` signed.
    pub(crate) is_certified: bool,
    /// The number of the connection among those of its protocol, from 1.
    pub(crate) connection: u64,
}

/// What a caller sent to prove who it is, besides the certificate of its connection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Credentials<'a> {
    None,
    Token(&'a [u8]),
    /// The digest of a token that was sent earlier on this connection.
    Digest(Digest),
    /// An `Authorization` field without a bearer token.
    Unreadable,
}

/// Why a caller may not do something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AuthError {
    /// It has sent no token, and anonymous callers may not do this.
    TokenRequired,
    UnknownToken,
    /// It is known, and lacks these scopes.
    Forbidden(Scopes),
}

impl<'a> Credentials<'a> {
    /// From the value of an `Authorization` field, if there is one.
    pub(crate) fn from_authorization(value: Option<&'a [u8]>) -> Credentials<'a> {
        match value.map(bearer) {
            None => Credentials::None,
            Some(Some(token)) => Credentials::Token(token),
            Some(None) => Credentials::Unreadable,
        }
    }
}

impl AccessPolicy {
    /// Whether a client without a certificate could be let in.
    pub(crate) fn accepts_uncertified(&self) -> bool {
        !self.tokens.is_empty() || !self.anonymous.is_none()
    }

    /// What a caller may do. A token gives its own scopes and no others; an unknown one is refused.
    ///
    /// The time that this takes does not depend on which token it is.
    pub(crate) fn authenticate(
        &self,
        peer: &Peer,
        credentials: Credentials<'_>,
    ) -> Result<Scopes, AuthError> {
        let found = match credentials {
            Credentials::None if peer.is_certified => return Ok(self.anonymous.and(self.certified)),
            Credentials::None => return Ok(self.anonymous),
            Credentials::Token(token) => self.tokens.scopes_of(&Digest::of(token)),
            Credentials::Digest(digest) => self.tokens.scopes_of(&digest),
            Credentials::Unreadable => None,
        };
        found.ok_or(AuthError::UnknownToken)
    }

    /// Whether a caller may do what needs these scopes. What needs none is open to everybody, whatever they send.
    pub(crate) fn authorize(
        &self,
        peer: &Peer,
        credentials: Credentials<'_>,
        needed: Scopes,
    ) -> Result<(), AuthError> {
        if needed.is_none() {
            return Ok(());
        }
        let scopes = self.authenticate(peer, credentials)?;
        match credentials {
            _ if scopes.allow(needed) => Ok(()),
            Credentials::None => Err(AuthError::TokenRequired),
            _ => Err(AuthError::Forbidden(needed)),
        }
    }
}

/// The token of `Bearer TOKEN`.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    let token = token.trim_ascii();
    (scheme.eq_ignore_ascii_case(b"bearer ") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::access::Token;

    #[test]
    fn a_bearer_token_is_found_after_its_scheme_only() {
        for (value, token) in [
            ("Bearer abc", Some("abc")),
            ("bearer  abc ", Some("abc")),
            ("Bearer ", None),
            ("Bearer", None),
            ("Basic abc", None),
            ("Bearerabc", None),
            ("", None),
        ] {
            assert_eq!(bearer(value.as_bytes()), token.map(str::as_bytes), "{value:?}");
        }
    }

    #[test]
    fn a_token_gives_its_own_scopes_and_an_unknown_one_is_refused() {
        let digest = Digest::of(b"tg_reads");
        let token = Token { name: "reads".to_owned(), digest, scopes: Scopes::READ };
        let policy = AccessPolicy {
            tokens: Access::new(vec![token]),
            anonymous: Scopes::CHECK,
            certified: Scopes::ADMIN,
        };
        let peer = |is_certified| Peer { address: Ipv4Addr::LOCALHOST.into(), is_certified, connection: 1 };
        let forbidden = |scopes| Err(AuthError::Forbidden(scopes));
        let read = Credentials::Token(b"tg_reads");
        for (credentials, is_certified, needed, expected) in [
            (Credentials::None, false, Scopes::CHECK, Ok(())),
            (Credentials::None, false, Scopes::READ, Err(AuthError::TokenRequired)),
            (Credentials::None, false, Scopes::ADMIN, Err(AuthError::TokenRequired)),
            (Credentials::None, true, Scopes::ADMIN, Ok(())),
            (read, false, Scopes::READ, Ok(())),
            (Credentials::Digest(digest), false, Scopes::READ, Ok(())),
            // A token does not add to what anonymous or certified callers may do.
            (read, true, Scopes::CHECK, forbidden(Scopes::CHECK)),
            (read, true, Scopes::ADMIN, forbidden(Scopes::ADMIN)),
            // Refused although an anonymous caller may do this.
            (Credentials::Token(b"tg_guessed"), false, Scopes::CHECK, Err(AuthError::UnknownToken)),
            (Credentials::Digest(Digest::of(b"tg_old")), false, Scopes::CHECK, Err(AuthError::UnknownToken)),
            (Credentials::Unreadable, true, Scopes::CHECK, Err(AuthError::UnknownToken)),
            (Credentials::Token(b"tg_guessed"), false, Scopes::NONE, Ok(())),
        ] {
            let found = policy.authorize(&peer(is_certified), credentials, needed);
            assert_eq!(found, expected, "{credentials:?} {is_certified} {needed}");
        }
    }
}
