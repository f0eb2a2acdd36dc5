//! Authentication and authorisation of callers. They are the same on every transport.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use tollgate::engine::ReceiptOwner;

use super::excerpt::Excerpt;
use super::request::{CheckRequest, RequestError};
use crate::access::{Access, Binding, Digest, InFlight, Scopes, Token};

/// Who may do what. Replaced as a whole when the configuration is read again.
pub(crate) struct AccessPolicy {
    pub(crate) tokens: Access,
    /// What callers without a token may do.
    pub(crate) anonymous: Scopes,
    /// What callers with a certificate may do in addition.
    pub(crate) certified: Scopes,
}

/// An authenticated caller, or an anonymous one.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    scopes: Scopes,
    token: Option<Arc<Token>>,
    is_certified: bool,
    /// Its calls that wait for the store; `None` for a caller that can make none.
    in_flight: Option<Arc<InFlight>>,
}

/// The access that a route or a command needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Needs {
    /// No access: it is open to every caller.
    Nothing,
    /// Any scope.
    AnyScope,
    Scope(Scopes),
    /// One of two scopes; the first one is named in a refusal.
    Either(Scopes, Scopes),
}

/// The other end of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    /// The address of the client: that of the connection, or the one in the PROXY protocol header of a trusted load balancer.
    pub(crate) address: IpAddr,
    /// Whether it has sent a certificate that `tls_client_ca` signed.
    pub(crate) is_certified: bool,
    /// The number of the connection among those of its protocol, from 1.
    pub(crate) connection: u64,
    /// Whether the server is full, and the connection has one of the places for health checks only.
    pub(crate) is_for_health: bool,
    /// The calls of all callers without a token from this address.
    pub(crate) in_flight: Arc<InFlight>,
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

    /// Who a caller is. A token gives its own scopes and no others; an unknown one is refused.
    ///
    /// The time that this takes does not depend on which token it is.
    pub(crate) fn authenticate(
        &self,
        peer: &Peer,
        credentials: Credentials<'_>,
    ) -> Result<Caller, AuthError> {
        let digest = match credentials {
            Credentials::None => {
                let scopes =
                    if peer.is_certified { self.anonymous.and(self.certified) } else { self.anonymous };
                let in_flight = Some(Arc::clone(&peer.in_flight));
                return Ok(Caller { scopes, token: None, is_certified: peer.is_certified, in_flight });
            }
            Credentials::Token(token) => Digest::of(token),
            Credentials::Digest(digest) => digest,
            Credentials::Unreadable => return Err(AuthError::UnknownToken),
        };
        let token = self.tokens.find(&digest).ok_or(AuthError::UnknownToken)?;
        let in_flight = Some(Arc::clone(&token.in_flight));
        let (scopes, token) = (token.scopes, Some(Arc::clone(token)));
        Ok(Caller { scopes, token, is_certified: peer.is_certified, in_flight })
    }

    /// Returns the caller, if it has what an action needs. An action that needs nothing accepts any credentials.
    pub(crate) fn authorize(
        &self,
        peer: &Peer,
        credentials: Credentials<'_>,
        needs: Needs,
    ) -> Result<Caller, AuthError> {
        if needs == Needs::Nothing {
            return Ok(Caller::NOBODY);
        }
        let caller = self.authenticate(peer, credentials)?;
        caller.authorize(needs)?;
        Ok(caller)
    }
}

impl Caller {
    /// A caller without any scope.
    pub(crate) const NOBODY: Caller =
        Caller { scopes: Scopes::NONE, token: None, is_certified: false, in_flight: None };

    /// Checks that it has what an action needs.
    #[inline]
    pub(crate) fn authorize(&self, needs: Needs) -> Result<(), AuthError> {
        match needs {
            Needs::Scope(scope) if self.scopes.allow(scope) => Ok(()),
            Needs::Either(one, other) if self.scopes.allow(one) || self.scopes.allow(other) => Ok(()),
            Needs::Nothing => Ok(()),
            Needs::AnyScope if !self.scopes.is_none() => Ok(()),
            // A token can give what is missing.
            _ if self.token.is_none() => Err(AuthError::TokenRequired),
            Needs::AnyScope => Err(AuthError::TokenRequired),
            Needs::Scope(scope) | Needs::Either(scope, _) => Err(AuthError::Forbidden(scope)),
        }
    }

    /// What it may do.
    pub(crate) const fn scopes(&self) -> Scopes {
        self.scopes
    }

    /// Whether it has no scope.
    pub(crate) const fn has_no_scope(&self) -> bool {
        self.scopes.is_none()
    }

    /// Its calls that wait for the store: those of its token, or of its address.
    pub(crate) const fn in_flight(&self) -> Option<&Arc<InFlight>> {
        self.in_flight.as_ref()
    }

    /// Whether it has no token.
    pub(crate) const fn is_anonymous(&self) -> bool {
        self.token.is_none()
    }

    /// How logs name it.
    pub(crate) fn name(&self) -> &str {
        match &self.token {
            Some(token) => &token.name,
            None if self.is_certified => "(certified)",
            None => "(anonymous)",
        }
    }

    /// What its token is bound to; `None` if it is not bound.
    #[inline]
    pub(crate) fn bound(&self) -> Option<&Binding> {
        self.token.as_deref().map(|token| &token.bound).filter(|bound| !bound.is_empty())
    }

    /// The request with what the token is bound to. Absent attribute values are filled in, and other values are refused.
    /// The limiter refuses what another rule counts. A request id is valid for tokens that are bound alike only.
    #[inline]
    pub(crate) fn bind<'a>(&'a self, request: CheckRequest<'a>) -> Result<CheckRequest<'a>, RequestError> {
        match self.bound() {
            None => Ok(request),
            Some(bound) => bind(bound, request),
        }
    }

    /// A request id, separate from the same id of callers that are bound otherwise.
    pub(crate) fn scoped_id<'a>(&self, id: &'a str) -> Cow<'a, str> {
        match self.bound() {
            None => Cow::Borrowed(id),
            Some(bound) => Cow::Owned(format!("{}:{id}", bound.id())),
        }
    }

    /// The owner of the receipts that it gets.
    pub(crate) fn receipt_owner(&self) -> Option<ReceiptOwner> {
        self.bound().and_then(Binding::fingerprint).map(ReceiptOwner)
    }

    /// Whether it may return a receipt of this owner. A caller that is not bound may return any.
    pub(crate) fn may_return(&self, owner: Option<ReceiptOwner>) -> bool {
        self.bound().is_none() || owner == self.receipt_owner()
    }
}

#[cold]
fn bind<'a>(bound: &'a Binding, mut request: CheckRequest<'a>) -> Result<CheckRequest<'a>, RequestError> {
    for (name, value) in bound.attributes() {
        match request.attributes().get(name) {
            None => request.add(name, value)?,
            Some(sent) if sent == value => (),
            Some(_) => return Err(RequestError::Bound(Excerpt::of(name))),
        }
    }
    request.scope_id(bound.id());
    if let Some(rules) = bound.rules() {
        request.permit_rules(rules);
    }
    Ok(request)
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
        let token = Token::new("reads", digest, Scopes::READ, Binding::default());
        let policy = AccessPolicy {
            tokens: Access::new(vec![token]),
            anonymous: Scopes::CHECK,
            certified: Scopes::ADMIN,
        };
        let peer = |is_certified| Peer {
            address: Ipv4Addr::LOCALHOST.into(),
            is_certified,
            connection: 1,
            is_for_health: false,
            in_flight: Arc::default(),
        };
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
        ] {
            let found = policy.authorize(&peer(is_certified), credentials, Needs::Scope(needed)).map(drop);
            assert_eq!(found, expected, "{credentials:?} {is_certified} {needed}");
        }
        let guessed = Credentials::Token(b"tg_guessed");
        assert!(policy.authorize(&peer(false), guessed, Needs::Nothing).is_ok());
    }

    fn bound_caller(pairs: &[(&str, &str)]) -> Caller {
        let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let token =
            Token::new("acme", Digest::of(b"tg_acme"), Scopes::CHECK, Binding::new(pairs, Vec::new()));
        Caller { scopes: token.scopes, token: Some(Arc::new(token)), ..Caller::NOBODY }
    }

    #[test]
    fn a_bound_token_fills_in_its_values_and_refuses_others() {
        let caller = bound_caller(&[("tenant", "acme"), ("plan", "free")]);
        let mut request = CheckRequest::new();
        request.add("tenant", "acme").expect("it fits");
        request.add("user", "u").expect("it fits");
        request.set_id("id-1").expect("it fits");
        let bound = caller.bind(request.clone()).expect("the values agree");
        let mut found: Vec<_> = bound.attributes().iter().collect();
        found.sort_unstable();
        assert_eq!(found, [("plan", "free"), ("tenant", "acme"), ("user", "u")]);
        assert_ne!(bound.request().id, request.request().id, "ids of tenants are separate");
        for other in ["globex", "acme ", "ACME", ""] {
            let mut request = CheckRequest::new();
            request.add("tenant", other).expect("it fits");
            let refused = caller.bind(request).map(drop);
            assert_eq!(refused, Err(RequestError::Bound(Excerpt::of("tenant"))), "{other}");
        }
        let unbound = Caller::NOBODY;
        let same = unbound.bind(request.clone()).expect("any value is allowed");
        assert_eq!(same.request().id, request.request().id);
    }

    #[test]
    fn a_bound_token_returns_receipts_of_the_same_bound_attributes_only() {
        let (acme, other) = (bound_caller(&[("tenant", "acme")]), bound_caller(&[("tenant", "globex")]));
        let replaced = bound_caller(&[("tenant", "acme")]);
        assert!(acme.may_return(replaced.receipt_owner()));
        assert!(!acme.may_return(other.receipt_owner()));
        assert!(!acme.may_return(Caller::NOBODY.receipt_owner()));
        assert!(Caller::NOBODY.may_return(acme.receipt_owner()));
    }
}
