//! Configured tokens, and the attribute values that they are bound to.

use std::sync::Arc;

use super::{Digest, InFlight, Scopes};

/// A configured token.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub(crate) name: String,
    pub(crate) digest: Digest,
    pub(crate) scopes: Scopes,
    pub(crate) bound: BoundAttributes,
    /// The calls of all callers with this token.
    pub(crate) in_flight: Arc<InFlight>,
}

impl Token {
    pub(crate) fn new(
        name: impl Into<String>,
        digest: Digest,
        scopes: Scopes,
        bound: BoundAttributes,
    ) -> Token {
        Token { name: name.into(), digest, scopes, bound, in_flight: Arc::default() }
    }
}

/// The attribute values that a token is bound to; empty for a token that may send any.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct BoundAttributes {
    /// Names and values, sorted by name.
    pairs: Vec<(String, String)>,
    /// The hash of the pairs. Tokens with the same pairs have the same one, so that a token can be replaced.
    fingerprint: Option<[u8; BoundAttributes::FINGERPRINT_BYTES]>,
    /// The same in hexadecimal digits; empty if there are no pairs.
    id: String,
}

impl BoundAttributes {
    const FINGERPRINT_BYTES: usize = 16;

    pub(crate) fn new(mut pairs: Vec<(String, String)>) -> BoundAttributes {
        if pairs.is_empty() {
            return BoundAttributes::default();
        }
        pairs.sort_unstable();
        let mut hasher = blake3::Hasher::new();
        for text in pairs.iter().flat_map(|(name, value)| [name, value]) {
            hasher.update(&(text.len() as u64).to_le_bytes()).update(text.as_bytes());
        }
        let mut fingerprint = [0; BoundAttributes::FINGERPRINT_BYTES];
        fingerprint.copy_from_slice(&hasher.finalize().as_bytes()[..BoundAttributes::FINGERPRINT_BYTES]);
        let id = fingerprint.iter().map(|byte| format!("{byte:02x}")).collect();
        BoundAttributes { pairs, fingerprint: Some(fingerprint), id }
    }

    /// Names and values.
    pub(crate) fn pairs(&self) -> &[(String, String)] {
        &self.pairs
    }

    /// The fingerprint as text; empty if there are no pairs.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Identifies the pairs; `None` without pairs.
    pub(crate) const fn fingerprint(&self) -> Option<[u8; BoundAttributes::FINGERPRINT_BYTES]> {
        self.fingerprint
    }
}

/// The configured tokens. There can be several, so that a new one is in use before an old one is removed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Access {
    tokens: Vec<Arc<Token>>,
}

impl Access {
    pub(crate) fn new(tokens: Vec<Token>) -> Access {
        Access { tokens: tokens.into_iter().map(Arc::new).collect() }
    }

    /// The token with this digest; `None` if it is unknown.
    ///
    /// It is compared with all tokens, so that the time does not reveal which one matched.
    pub(crate) fn find(&self, digest: &Digest) -> Option<&Arc<Token>> {
        let mut found = None;
        for known in &self.tokens {
            if known.digest.is(digest) {
                found = Some(known);
            }
        }
        found
    }

    /// Whether no token is configured.
    pub(crate) fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(name: &str, text: &str, scopes: Scopes) -> Token {
        Token::new(name, Digest::of(text.as_bytes()), scopes, BoundAttributes::default())
    }

    #[test]
    fn a_token_gives_its_own_scopes_and_no_other() {
        let access = Access::new(vec![
            token("old", "tg_old", Scopes::CHECK),
            token("new", "tg_new", Scopes::CHECK.and(Scopes::READ)),
            token("operator", "tg_operator", Scopes::ADMIN),
        ]);
        let scopes_of = |token: &[u8]| access.find(&Digest::of(token)).map(|token| token.scopes);
        assert_eq!(scopes_of(b"tg_old"), Some(Scopes::CHECK));
        assert_eq!(scopes_of(b"tg_new"), Some(Scopes::CHECK.and(Scopes::READ)));
        assert_eq!(scopes_of(b"tg_operator"), Some(Scopes::ADMIN));
        for unknown in [&b""[..], b"tg_ol", b"tg_old ", b"tg_Old", b"tg_oldtg_new", &[0xff; 4_096]] {
            assert_eq!(scopes_of(unknown), None, "{unknown:?}");
        }
        // The digest in the configuration is not a token.
        let digest = Digest::of(b"tg_operator").to_string();
        assert_eq!(scopes_of(digest.as_bytes()), None);
        assert!(Access::default().find(&Digest::of(b"")).is_none());
    }

    #[test]
    fn different_bound_attributes_have_different_fingerprints_in_any_order() {
        let of = |pairs: &[(&str, &str)]| {
            let owned = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            BoundAttributes::new(owned.collect()).fingerprint()
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[("a", "1"), ("b", "2")]), of(&[("b", "2"), ("a", "1")]));
        let all =
            [of(&[("a", "1")]), of(&[("a", "2")]), of(&[("b", "1")]), of(&[("a1", "")]), of(&[("", "a1")])];
        for (index, fingerprint) in all.iter().enumerate() {
            assert!(fingerprint.is_some() && !all[..index].contains(fingerprint), "{index}");
        }
    }
}
