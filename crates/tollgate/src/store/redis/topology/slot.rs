//! Which part of a cluster a key belongs to.

/// So many parts has a cluster.
pub(crate) const SLOTS: usize = 16_384;

/// The slot of a key: that of what stands between its first braces, where our keys have their tag.
pub(crate) fn slot_of(key: &[u8]) -> u16 {
    crc16(tag(key).unwrap_or(key)) % SLOTS as u16
}

fn tag(key: &[u8]) -> Option<&[u8]> {
    let (_, after) = split(key, b'{')?;
    let (tag, _) = split(after, b'}')?;
    Some(tag).filter(|tag| !tag.is_empty())
}

fn split(bytes: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let place = bytes.iter().position(|&byte| byte == at)?;
    Some((&bytes[..place], &bytes[place + 1..]))
}

/// CRC-16/XMODEM, as the specification of clusters wants it.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, &byte| crc << 8 ^ TABLE[usize::from((crc >> 8) as u8 ^ byte)])
}

const TABLE: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut crc, mut bit) = ((byte as u16) << 8, 0);
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        assert_eq!(slot_of(b"foo"), 12_182);
        assert_eq!(slot_of(b"tg:1:shop:{foo}:rule:subject"), 12_182);
        assert_eq!(slot_of(b"{}foo"), crc16(b"{}foo") % 16_384);
        assert_eq!(slot_of(b"{foo"), crc16(b"{foo") % 16_384);
    }
}
