//! Short texts compared without a call: names of attributes and the like are a few bytes long, and calling out to compare
//! them costs more than comparing them.

/// Whether two texts are the same.
#[inline(always)]
pub(crate) fn same(left: &[u8], right: &[u8]) -> bool {
    left.len() == right.len() && same_bytes(left, right)
}

/// What of `text` follows `start`, if it begins so.
#[inline(always)]
pub(crate) fn behind<'t>(text: &'t [u8], start: &[u8]) -> Option<&'t [u8]> {
    let (first, behind) = text.split_at_checked(start.len())?;
    same_bytes(first, start).then_some(behind)
}

/// For two of the same length. From four bytes on, the first word and the last one, which may overlap.
#[inline(always)]
fn same_bytes(left: &[u8], right: &[u8]) -> bool {
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

    /// Every length, and a difference at every place.
    #[test]
    fn what_differs_in_one_byte_is_not_the_same() {
        for len in 0..40 {
            let text: Vec<u8> = (0..len).collect();
            assert!(same(&text, &text.clone()));
            assert!(!same(&text, &[text.as_slice(), b"x"].concat()));
            assert_eq!(behind(&[text.as_slice(), b"x"].concat(), &text), Some(b"x".as_slice()));
            for at in 0..text.len() {
                let mut other = text.clone();
                other[at] ^= 1;
                assert!(!same(&text, &other), "{len} bytes, the one at {at}");
                assert_eq!(behind(&other, &text), None, "{len} bytes, the one at {at}");
                assert_eq!(behind(&text[..at], &text), None);
            }
        }
    }
}
