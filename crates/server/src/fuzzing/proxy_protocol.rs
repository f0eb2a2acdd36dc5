//! Headers of the PROXY protocol.

use std::net::IpAddr;

use crate::serve::listen::proxy_protocol::{Progress, Source, progress};

/// Longest header: the fixed part and the rest of version 2.
const BYTES_MAX: usize = 16 + 4_096;

/// Checks that no more bytes than a header may have are ever needed, that a header ends where it says, and that a text
/// header equals its naive reading.
///
/// # Panics
///
/// If one of them does not hold.
pub fn proxy_protocol(bytes: &[u8]) {
    let mut length = 0;
    let source = loop {
        match progress(&bytes[..length]) {
            Err(_) => return,
            Ok(Progress::Complete(source)) => break source,
            Ok(Progress::Need(more)) => {
                assert!(more > 0 && length + more <= BYTES_MAX, "{more} more than {length}");
                length += more;
            }
        }
        if length > bytes.len() {
            return;
        }
    };
    let header = &bytes[..length];
    if header.starts_with(b"PROXY ") {
        let end = header.iter().position(|&byte| byte == b'\n');
        assert_eq!(end, Some(length - 1), "a text header is one line");
        assert!(length <= 107);
    }
    if let Source::Client(address) = source {
        assert_eq!(address, address.to_canonical());
        if header.starts_with(b"PROXY ") {
            let text = String::from_utf8_lossy(header);
            let naive: IpAddr =
                text.split(' ').nth(2).and_then(|word| word.parse().ok()).expect("an address");
            assert_eq!(address, naive.to_canonical());
        }
    }
}
