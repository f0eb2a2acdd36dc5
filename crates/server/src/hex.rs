//! Hexadecimal digits.

/// Writes bytes as digits.
pub(crate) fn of(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads 32 bytes from 64 digits.
pub(crate) fn to_32_bytes(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * index..2 * index + 2)?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_back_and_other_texts_are_refused() {
        let bytes = std::array::from_fn(|index| index as u8 * 7);
        assert_eq!(to_32_bytes(&of(&bytes)), Some(bytes));
        for text in ["", "00", &"0".repeat(63), &"0".repeat(65), &"+f".repeat(32), &"é".repeat(32)] {
            assert_eq!(to_32_bytes(text), None, "{text}");
        }
    }
}
