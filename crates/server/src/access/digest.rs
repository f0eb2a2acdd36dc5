//! Digests of tokens.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};

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
    pub(super) fn is(&self, other: &Digest) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
