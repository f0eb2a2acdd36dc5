//! Comparison of short byte strings without a function call. Attribute names are a few bytes long, and calling `memcmp`
//! costs more than the comparison itself.

/// Whether two byte strings are equal.
#[inline(always)]
pub(crate) fn equal(left: &[u8], right: &[u8]) -> bool {
    left.len() == right.len() && equal_len(left, right)
}

/// Returns the rest of `text` after `prefix`, if `text` starts with it.
#[inline(always)]
pub(crate) fn strip_prefix<'t>(text: &'t [u8], prefix: &[u8]) -> Option<&'t [u8]> {
    let (first, rest) = text.split_at_checked(prefix.len())?;
    equal_len(first, prefix).then_some(rest)
}

/// Compares two byte strings of the same length. From four bytes on it compares the first and the last word, which may
/// overlap.
#[inline(always)]
fn equal_len(left: &[u8], right: &[u8]) -> bool {
    match left.len() {
        0..4 => left.iter().zip(right).all(|(left, right)| left == right),
        4..8 => {
            left.first_chunk::<4>() == right.first_chunk() && left.last_chunk::<4>() == right.last_chunk()
        }
        8..=16 => {
            left.first_chunk::<8>() == right.first_chunk() && left.last_chunk::<8>() == right.last_chunk()
        }
        _ => left == right,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every length, with a difference at every position.
    #[test]
    fn strings_that_differ_in_one_byte_are_not_equal() {
        for len in 0..40 {
            let text: Vec<u8> = (0..len).collect();
            assert!(equal(&text, &text.clone()));
            assert!(!equal(&text, &[text.as_slice(), b"x"].concat()));
            assert_eq!(strip_prefix(&[text.as_slice(), b"x"].concat(), &text), Some(b"x".as_slice()));
            for at in 0..text.len() {
                let mut other = text.clone();
                other[at] ^= 1;
                assert!(!equal(&text, &other), "{len} bytes, difference at {at}");
                assert_eq!(strip_prefix(&other, &text), None, "{len} bytes, difference at {at}");
                assert_eq!(strip_prefix(&text[..at], &text), None);
            }
        }
    }
}
