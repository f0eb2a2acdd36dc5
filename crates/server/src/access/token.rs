//! Configured tokens, and the attribute values and rules that they are bound to.

use std::sync::Arc;

use super::{Digest, InFlight, Scopes};

/// A configured token.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub(crate) name: String,
    pub(crate) digest: Digest,
    pub(crate) scopes: Scopes,
    pub(crate) bound: Binding,
    /// The calls of all callers with this token.
    pub(crate) in_flight: Arc<InFlight>,
}

impl Token {
    pub(crate) fn new(name: impl Into<String>, digest: Digest, scopes: Scopes, bound: Binding) -> Token {
        Token { name: name.into(), digest, scopes, bound, in_flight: Arc::default() }
    }
}

/// What a token is bound to: the only values that it may send for some attributes, and the only rules that may count its
/// requests. Empty for a token that may do both freely.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Binding {
    /// Names and values of attributes, sorted by name.
    attributes: Vec<(String, String)>,
    /// Ids of rules, sorted; empty for all rules.
    rules: Vec<String>,
    /// The hash of both. Tokens that are bound alike have the same one, so that a token can be replaced.
    fingerprint: Option<[u8; Binding::FINGERPRINT_BYTES]>,
    /// The same in hexadecimal digits; empty for a token that is not bound.
    id: String,
}

impl Binding {
    const FINGERPRINT_BYTES: usize = 16;
    /// Separates rules from attributes in the hash. No attribute has an empty name.
    const RULES: [&str; 2] = ["", "rules"];

    pub(crate) fn new(mut attributes: Vec<(String, String)>, mut rules: Vec<String>) -> Binding {
        if attributes.is_empty() && rules.is_empty() {
            return Binding::default();
        }
        attributes.sort_unstable();
        rules.sort_unstable();
        rules.dedup();
        let mut hasher = blake3::Hasher::new();
        let mut add = |text: &str| {
            hasher.update(&(text.len() as u64).to_le_bytes()).update(text.as_bytes());
        };
        attributes.iter().flat_map(|(name, value)| [name, value]).for_each(|text| add(text));
        if !rules.is_empty() {
            Binding::RULES.into_iter().for_each(&mut add);
            rules.iter().for_each(|rule| add(rule));
        }
        let mut fingerprint = [0; Binding::FINGERPRINT_BYTES];
        fingerprint.copy_from_slice(&hasher.finalize().as_bytes()[..Binding::FINGERPRINT_BYTES]);
        let id = fingerprint.iter().map(|byte| format!("{byte:02x}")).collect();
        Binding { attributes, rules, fingerprint: Some(fingerprint), id }
    }

    /// Whether the token may send any attributes, under any rules.
    pub(crate) const fn is_empty(&self) -> bool {
        self.fingerprint.is_none()
    }

    /// Names and values of attributes.
    pub(crate) fn attributes(&self) -> &[(String, String)] {
        &self.attributes
    }

    /// The ids of the only rules that may count its requests; `None` for all.
    pub(crate) fn rules(&self) -> Option<&[String]> {
        Some(&*self.rules).filter(|rules| !rules.is_empty())
    }

    /// The fingerprint as text; empty for a token that is not bound.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Identifies what the token is bound to; `None` if it is not bound.
    pub(crate) const fn fingerprint(&self) -> Option<[u8; Binding::FINGERPRINT_BYTES]> {
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

    /// All tokens, in the order of the configuration.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Token> {
        self.tokens.iter().map(|token| &**token)
    }

    /// Names and scopes of all tokens.
    pub(crate) fn names(&self) -> Vec<String> {
        self.tokens.iter().map(|token| format!("{} ({})", token.name, token.scopes)).collect()
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
        Token::new(name, Digest::of(text.as_bytes()), scopes, Binding::default())
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
    fn different_bindings_have_different_fingerprints_in_any_order() {
        let of = |pairs: &[(&str, &str)], rules: &[&str]| {
            let owned = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            Binding::new(owned.collect(), rules.iter().map(|rule| (*rule).to_owned()).collect()).fingerprint()
        };
        assert_eq!(of(&[], &[]), None);
        assert_eq!(of(&[("a", "1"), ("b", "2")], &[]), of(&[("b", "2"), ("a", "1")], &[]));
        assert_eq!(of(&[], &["a", "b"]), of(&[], &["b", "a", "b"]));
        let all = [
            of(&[("a", "1")], &[]),
            of(&[("a", "2")], &[]),
            of(&[("b", "1")], &[]),
            of(&[("a1", "")], &[]),
            of(&[("", "a1")], &[]),
            of(&[("a", "1")], &["a"]),
            of(&[("a", "1")], &["b"]),
            of(&[], &["a"]),
            of(&[], &["a", "b"]),
            of(&[], &["ab"]),
            of(&[("a", "b")], &[]),
        ];
        for (index, fingerprint) in all.iter().enumerate() {
            assert!(fingerprint.is_some() && !all[..index].contains(fingerprint), "{index}");
        }
    }
}
