//! Bytes of clients as text, without loss: different bytes become different text.
//!
//! Gateways pass on what clients send, and that is not always UTF-8. If it were an error, a gateway that lets requests
//! pass on errors would let it pass uncounted.

use std::borrow::Cow;

/// The characters that stand for single bytes: U+10FF80 to U+10FFFF, from the private use area, for 0x80 to 0xFF.
const BYTES: u32 = 0x10_FF00;

/// Returns the bytes as text. Valid UTF-8 is unchanged.
///
/// Each byte that is not UTF-8 becomes a character of U+10FF80 to U+10FFFF. So does each byte of those characters
/// themselves, so that the bytes can be computed from the text.
pub(crate) fn lossless_text(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        // All of these characters start with this byte.
        Ok(text) if !bytes.contains(&0xF4) => Cow::Borrowed(text),
        _ => Cow::Owned(escaped(bytes)),
    }
}

#[cold]
fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            if u32::from(character) < BYTES {
                text.push(character);
            } else {
                push_bytes(character.encode_utf8(&mut [0; 4]).as_bytes(), &mut text);
            }
        }
        push_bytes(chunk.invalid(), &mut text);
    }
    text
}

fn push_bytes(bytes: &[u8], text: &mut String) {
    text.extend(bytes.iter().filter_map(|&byte| char::from_u32(BYTES | u32::from(byte))));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The inverse, written independently.
    fn bytes_of(text: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        for character in text.chars() {
            match u32::from(character) {
                code @ 0x10_FF80..=0x10_FFFF => bytes.push((code - 0x10_FF00) as u8),
                _ => bytes.extend_from_slice(character.to_string().as_bytes()),
            }
        }
        bytes
    }

    #[test]
    fn valid_text_is_unchanged_and_every_other_byte_gets_a_character() {
        for text in ["", "plain", "ä€", "\u{0}\n", "\u{10FEFF}", "\u{FFFD}", "\u{100000}"] {
            assert_eq!(lossless_text(text.as_bytes()), text);
        }
        assert_eq!(lossless_text(b"a\xffb"), "a\u{10FFFF}b");
        assert_eq!(lossless_text(b"\xc3"), "\u{10FFC3}");
        assert_eq!(
            lossless_text("\u{10FFFF}".as_bytes()),
            "\u{10FFF4}\u{10FF8F}\u{10FFBF}\u{10FFBF}",
            "the text of the byte 0xff is not the text of this character"
        );
    }

    proptest! {
        #[test]
        fn different_bytes_become_different_text(
            bytes in prop::collection::vec(prop_oneof![any::<u8>(), prop::sample::select(b"\xf4\x8f\xbf\xbea".to_vec())], 0..24),
        ) {
            prop_assert_eq!(bytes_of(&lossless_text(&bytes)), bytes);
        }
    }
}
