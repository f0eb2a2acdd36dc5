//! gRPC messages, encoded by hand: a few fields, the same for every server.

/// A text or a message.
pub(super) fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2], varint(bytes.len() as u64).as_slice(), bytes].concat()
}

pub(super) fn integer(number: u8, value: u64) -> Vec<u8> {
    [&[number << 3], varint(value).as_slice()].concat()
}

/// The message as gRPC frames it: uncompressed flag, length, bytes.
pub(super) fn framed(message: &[u8]) -> Vec<u8> {
    [&[0], &(message.len() as u32).to_be_bytes()[..], message].concat()
}

/// Returns the length of the first framed message, or `None` if it is incomplete.
pub(super) fn framed_length(bytes: &[u8]) -> Option<usize> {
    let length = bytes.get(1..FRAME)?.try_into().map(u32::from_be_bytes).ok()?;
    Some(FRAME + length as usize).filter(|&whole| whole <= bytes.len())
}

/// Length of the frame header.
pub(super) const FRAME: usize = 5;

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_texts_are_written_as_the_format_says() {
        assert_eq!(integer(2, 300), [0x10, 0xac, 0x02]);
        assert_eq!(field(1, b"key"), [0x0a, 3, b'k', b'e', b'y']);
        let message = framed(&field(1, b"key"));
        assert_eq!(message, [0, 0, 0, 0, 5, 0x0a, 3, b'k', b'e', b'y']);
        assert_eq!(framed_length(&message), Some(message.len()));
        assert_eq!(framed_length(&message[..9]), None);
    }
}
