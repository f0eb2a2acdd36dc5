//! Properties that must hold for any bytes. The fuzz targets and the test that replays their corpus share them.

use core::net::IpAddr;

use tollgate_core::key::StoredKey;
use tollgate_core::request::client_address::{
    Cidr, Prefixes, ProxyHeader, StopReason, TrustedProxies, client_address,
};
use tollgate_core::request::path::{PathCase, assert_readings_hold};
use tollgate_core::{Operation, Receipt, State, Time, Verdict};

/// Panics if the property does not hold for these bytes.
type Property = fn(&[u8]);

/// What can be fed with bytes, by the name of its fuzz target and of the folder of its corpus.
pub const PROPERTIES: [(&str, Property); 6] = [
    ("cidr", cidr),
    ("forwarded", forwarded),
    ("key", key),
    ("path", path),
    ("receipt", receipt),
    ("x_forwarded_for", x_forwarded_for),
];

/// The bytes are a request target.
pub fn path(bytes: &[u8]) {
    let Ok(target) = std::str::from_utf8(bytes) else { return };
    for case in [PathCase::Sensitive, PathCase::Insensitive] {
        assert_readings_hold(target, case);
    }
}

/// The bytes are the values of the header, one per line.
pub fn forwarded(bytes: &[u8]) {
    check_proxy_header(bytes, ProxyHeader::Forwarded, "for=\"[2001:db8::7]:4711\";by=_a");
}

/// The bytes are the values of the header, one per line.
pub fn x_forwarded_for(bytes: &[u8]) {
    check_proxy_header(bytes, ProxyHeader::XForwardedFor, "[2001:db8::7]:4711");
}

/// The bytes are the text of a block of addresses.
pub fn cidr(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match text.parse::<Cidr>() {
        Ok(block) => {
            assert_eq!(block.to_string().parse(), Ok(block), "a block round-trips through its text");
            assert!(block.contains(block.first()));
            assert_eq!(block.first(), block.first().to_canonical());
        }
        // Each quoted character may be escaped.
        Err(error) => assert!(error.to_string().len() < 1_200, "{error}"),
    }
}

/// The bytes are the text of a key.
pub fn key(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(stored) = text.parse::<StoredKey>() {
        assert_eq!(stored.key().to_string(), text, "a key has one text");
    }
}

/// The bytes are a receipt. It round-trips, and at no time gives back more than it says.
pub fn receipt(bytes: &[u8]) {
    let Ok(receipt) = Receipt::decode(bytes) else { return };
    assert_eq!(Receipt::decode(&receipt.encode()).as_ref(), Ok(&receipt), "one receipt, one encoding");
    let mut state = None;
    let charge = Operation::charge(receipt.cost.min(receipt.limit.capacity()));
    if let Some(write) = receipt.limit.decide(None, receipt.charged_at, &charge).write {
        State::commit(&mut state, write.change);
    }
    for amount in [0, 1, receipt.cost, u64::MAX] {
        let undo = receipt.undo(amount);
        for now in [Time::ZERO, receipt.charged_at, Time::MAX] {
            let answer = receipt.limit.decide(state.as_ref(), now, &undo).answer;
            if let (Operation::Refund { .. }, Verdict::Done { amount: given }) = (undo, answer.verdict) {
                assert!(given <= amount.min(receipt.cost), "{undo:?}: {answer:?}");
            }
        }
    }
}

/// Whatever the client sends, the address that a trusted proxy appends is the client's.
fn check_proxy_header(bytes: &[u8], header: ProxyHeader, element: &str) {
    let peer: IpAddr = "10.0.0.1".parse().expect("an address");
    let blocks = ["10.0.0.0/8", "fd00::/8"].map(|block| block.parse().expect("a block"));
    let proxies = TrustedProxies::new(blocks.to_vec(), header);
    let mut values: Vec<Vec<u8>> = bytes.split(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect();

    let client = client_address(peer, &values, &proxies);
    assert_eq!(client.ip(), client.ip().to_canonical());
    assert_eq!(proxies.trusts(client.ip()), client.stop() != StopReason::Untrusted);
    let block = client.block(Prefixes::default());
    assert!(block.contains(client.ip()));
    assert_eq!(block.to_string().parse(), Ok(block));

    let named: IpAddr = "2001:db8::7".parse().expect("an address");
    let is_named = |values: &[Vec<u8>]| {
        let client = client_address(peer, values, &proxies);
        client.ip() == named && client.stop() == StopReason::Untrusted
    };
    values.push(element.into());
    assert!(is_named(&values), "a proxy added a value");
    values.pop();
    let last = values.last_mut().expect("splitting gives one part at least");
    last.extend_from_slice(format!(", {element}").as_bytes());
    assert!(is_named(&values), "a proxy added to the last value");
}
