//! Which slot a key belongs to. Written from the specification, and shared with nothing that it judges.

/// How many slots there are.
pub const SLOTS: u16 = 16_384;

/// The slot of a key: of what stands between the first `{` and the `}` that follows, if that is anything,
/// else of all of it.
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
    fn the_check_value_of_the_catalogue_comes_out() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
    }
}
