//! The hash slot of a key. Written from the specification, independently of the code that it tests.

/// Number of hash slots.
pub const SLOTS: u16 = 16_384;

/// Returns the hash slot of a key: that of the text between the first `{` and the next `}` if it is not empty, otherwise
/// that of the whole key.
pub fn slot_of(key: &[u8]) -> u16 {
    crc16(hashed_part(key)) % SLOTS
}

fn hashed_part(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|&byte| byte == b'{') else { return key };
    let after = &key[open + 1..];
    match after.iter().position(|&byte| byte == b'}') {
        None | Some(0) => key,
        Some(close) => &after[..close],
    }
}

/// CRC-16/XMODEM, bit by bit.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, &byte| {
        let crc = crc ^ (u16::from(byte) << 8);
        (0..8).fold(crc, |crc, _| if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc16_of_the_standard_check_input_is_right() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
    }
}
