//! Scopes, and the tokens that give them.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};

/// What a caller may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Scopes(u8);

impl Scopes {
    pub(crate) const NONE: Scopes = Scopes(0);
    /// Checks, and what follows them: refunds, leases, reports.
    pub(crate) const CHECK: Scopes = Scopes(1);
    /// Reading: rules, metrics, explanations.
    pub(crate) const READ: Scopes = Scopes(2);
    /// Changes: resets.
    pub(crate) const ADMIN: Scopes = Scopes(4);

    const NAMED: [(&str, Scopes); 3] =
        [("check", Scopes::CHECK), ("read", Scopes::READ), ("admin", Scopes::ADMIN)];

    /// The union of both.
    #[must_use]
    pub(crate) const fn and(self, other: Scopes) -> Scopes {
        Scopes(self.0 | other.0)
    }

    /// Whether it is empty.
    pub(crate) const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Whether these include all of `needed`.
    pub(crate) const fn allow(self, needed: Scopes) -> bool {
        self.0 & needed.0 == needed.0
    }

    /// The scope with this name; `none` is the empty set.
    pub(crate) fn named(name: &str) -> Option<Scopes> {
        let none = [("none", Scopes::NONE)];
        none.into_iter().chain(Scopes::NAMED).find(|(known, _)| *known == name).map(|(_, scopes)| scopes)
    }

    /// The names of the scopes.
    pub(crate) fn names(self) -> impl Iterator<Item = &'static str> {
        Scopes::NAMED.into_iter().filter(move |(_, scope)| self.allow(*scope)).map(|(name, _)| name)
    }
}

impl fmt::Display for Scopes {
    /// `check, read`, or `none`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.names().collect();
        f.write_str(if names.is_empty() { "none".to_owned() } else { names.join(", ") }.as_str())
    }
}

/// The SHA-256 of a token: what is stored of it. A token has 256 random bits, so a fast hash is enough.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Digest([u8; Digest::BYTES]);

/// Invalid text of a digest. The error does not repeat it: it may be the token itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "invalid digest: expected sha256: and 64 hexadecimal digits; `tollgate token` prints a new token and its digest"
)]
pub(crate) struct NotADigest;

impl Digest {
    const BYTES: usize = 32;

    pub(crate) fn of(token: &[u8]) -> Digest {
        let mut bytes = [0; Digest::BYTES];
        bytes.copy_from_slice(digest(&SHA256, token).as_ref());
        Digest(bytes)
    }

    /// Compares in constant time.
    fn is(&self, other: &Digest) -> bool {
        verify_slices_are_equal(&self.0, &other.0).is_ok()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    /// The beginning, which identifies it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.15}…", self.to_string())
    }
}

impl FromStr for Digest {
    type Err = NotADigest;

    fn from_str(text: &str) -> Result<Digest, NotADigest> {
        let digits = text.strip_prefix("sha256:").ok_or(NotADigest)?;
        if digits.len() != 2 * Digest::BYTES {
            return Err(NotADigest);
        }
        let mut bytes = [0; Digest::BYTES];
        for (index, digit) in digits.chars().enumerate() {
            let digit = digit.to_digit(16).ok_or(NotADigest)?;
            bytes[index / 2] = bytes[index / 2] << 4 | digit as u8;
        }
        Ok(Digest(bytes))
    }
}

/// A configured token.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub(crate) name: String,
    pub(crate) digest: Digest,
    pub(crate) scopes: Scopes,
}

/// The configured tokens. There can be several, so that a new one is in use before an old one is removed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Access {
    tokens: Vec<Token>,
}

impl Access {
    pub(crate) fn new(tokens: Vec<Token>) -> Access {
        Access { tokens }
    }

    /// The scopes of the token with this digest; `None` if it is unknown.
    ///
    /// It is compared with all tokens, so that the time does not reveal which one matched.
    pub(crate) fn scopes_of(&self, digest: &Digest) -> Option<Scopes> {
        let mut found = None;
        for known in &self.tokens {
            if known.digest.is(digest) {
                found = Some(found.map_or(known.scopes, |scopes: Scopes| scopes.and(known.scopes)));
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
        Token { name: name.to_owned(), digest: Digest::of(text.as_bytes()), scopes }
    }

    #[test]
    fn a_token_gives_its_own_scopes_and_no_other() {
        let access = Access::new(vec![
            token("old", "tg_old", Scopes::CHECK),
            token("new", "tg_new", Scopes::CHECK.and(Scopes::READ)),
            token("operator", "tg_operator", Scopes::ADMIN),
        ]);
        let scopes_of = |token: &[u8]| access.scopes_of(&Digest::of(token));
        assert_eq!(scopes_of(b"tg_old"), Some(Scopes::CHECK));
        assert_eq!(scopes_of(b"tg_new"), Some(Scopes::CHECK.and(Scopes::READ)));
        assert_eq!(scopes_of(b"tg_operator"), Some(Scopes::ADMIN));
        for unknown in [&b""[..], b"tg_ol", b"tg_old ", b"tg_Old", b"tg_oldtg_new", &[0xff; 4_096]] {
            assert_eq!(scopes_of(unknown), None, "{unknown:?}");
        }
        // The digest in the configuration is not a token.
        let digest = Digest::of(b"tg_operator").to_string();
        assert_eq!(scopes_of(digest.as_bytes()), None);
        assert_eq!(Access::default().scopes_of(&Digest::of(b"")), None);
    }

    #[test]
    fn digests_match_the_example_of_the_standard() {
        // FIPS 180-2, appendix B.
        let abc = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(Digest::of(b"abc").to_string(), abc);
        assert_eq!(abc.parse(), Ok(Digest::of(b"abc")));
        assert_eq!(abc.to_uppercase().replace("SHA", "sha").parse(), Ok(Digest::of(b"abc")));
        for text in
            ["", "sha256:", &abc[..70], &abc[7..], &abc.replace('f', "g"), &format!("{abc}0"), "md5:00"]
        {
            assert_eq!(text.parse::<Digest>(), Err(NotADigest), "{text}");
        }
        assert_eq!(format!("{:?}", Digest::of(b"abc")), "sha256:ba7816bf…");
    }

    #[test]
    fn scopes_have_names_and_allow_only_what_they_include() {
        let both = Scopes::CHECK.and(Scopes::READ);
        assert_eq!(both.to_string(), "check, read");
        assert_eq!(Scopes::NONE.to_string(), "none");
        assert!(both.allow(Scopes::READ) && !both.allow(Scopes::ADMIN) && !Scopes::CHECK.allow(both));
        for (name, scopes) in [("check", Some(Scopes::CHECK)), ("none", Some(Scopes::NONE)), ("root", None)] {
            assert_eq!(Scopes::named(name), scopes);
        }
    }
}
