//! The hash slot of a key.

/// Number of hash slots in a cluster.
pub(crate) const HASH_SLOTS: usize = 16_384;

/// Returns the hash slot of a key: that of its hash tag, the text between the first braces.
pub(crate) fn hash_slot(key: &[u8]) -> u16 {
    crc16(hash_tag(key).unwrap_or(key)) % HASH_SLOTS as u16
}

fn hash_tag(key: &[u8]) -> Option<&[u8]> {
    let (_, after) = split_once(key, b'{')?;
    let (tag, _) = split_once(after, b'}')?;
    Some(tag).filter(|tag| !tag.is_empty())
}

fn split_once(bytes: &[u8], separator: u8) -> Option<(&[u8], &[u8])> {
    let index = bytes.iter().position(|&byte| byte == separator)?;
    Some((&bytes[..index], &bytes[index + 1..]))
}

/// CRC-16/XMODEM, as the Redis Cluster specification requires.
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
    fn hash_slots_match_the_cluster_specification() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        assert_eq!(hash_slot(b"foo"), 12_182);
        assert_eq!(hash_slot(b"tg:1:shop:{foo}:rule:subject"), 12_182);
        assert_eq!(hash_slot(b"{}foo"), crc16(b"{}foo") % 16_384);
        assert_eq!(hash_slot(b"{foo"), crc16(b"{foo") % 16_384);
    }
}
