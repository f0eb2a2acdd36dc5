use core::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::*;

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn trusting(header: ProxyHeader) -> TrustedProxies {
    let cidrs = ["10.0.0.0/8", "fd00::/8", "192.0.2.80"].map(|cidr| cidr.parse().expect("a block"));
    TrustedProxies::new(cidrs.to_vec(), header)
}

/// From the trusted peer 10.0.0.1.
fn found(header: ProxyHeader, values: &[&str]) -> (String, StopReason) {
    let client = client_address(ip("10.0.0.1"), values, &trusting(header));
    (client.ip().to_string(), client.stop())
}

fn x_forwarded_for(values: &[&str]) -> (String, StopReason) {
    found(ProxyHeader::XForwardedFor, values)
}

fn forwarded(value: &str) -> (String, StopReason) {
    found(ProxyHeader::Forwarded, &[value])
}

#[test]
fn the_client_is_the_first_untrusted_address_from_the_right() {
    for (values, address, stop) in [
        (&[][..], "10.0.0.1", StopReason::Exhausted),
        (&["203.0.113.7"], "203.0.113.7", StopReason::Untrusted),
        (&["6.6.6.6, 203.0.113.7"], "203.0.113.7", StopReason::Untrusted),
        (&["6.6.6.6, 203.0.113.7,10.9.9.9"], "203.0.113.7", StopReason::Untrusted),
        (&["6.6.6.6, 203.0.113.7", "10.9.9.9", "192.0.2.80"], "203.0.113.7", StopReason::Untrusted),
        (&["6.6.6.6, 203.0.113.7 \t,\tfd12::1,10.0.0.3"], "203.0.113.7", StopReason::Untrusted),
        (&["10.0.0.9, 10.0.0.8"], "10.0.0.9", StopReason::Exhausted),
        (&["6.6.6.6, 192.0.2.81, 192.0.2.80"], "192.0.2.81", StopReason::Untrusted),
        (&["203.0.113.7", "", " , ,"], "203.0.113.7", StopReason::Untrusted),
        (&["", ","], "10.0.0.1", StopReason::Exhausted),
        (&["6.6.6.6, unknown, 10.0.0.2"], "10.0.0.2", StopReason::Hidden),
        (&["6.6.6.6, _gateway-7, 10.0.0.2"], "10.0.0.2", StopReason::Hidden),
        (&["6.6.6.6, bogus, 10.0.0.2"], "10.0.0.2", StopReason::Malformed),
        (&["6.6.6.6", "bogus"], "10.0.0.1", StopReason::Malformed),
    ] {
        assert_eq!(x_forwarded_for(values), (address.to_owned(), stop), "{values:?}");
    }
}

#[test]
fn an_untrusted_peer_is_the_client_whatever_the_header_says() {
    for header in [ProxyHeader::None, ProxyHeader::Forwarded, ProxyHeader::XForwardedFor] {
        let client = client_address(ip("203.0.113.9"), &["10.0.0.2", "for=10.0.0.2"], &trusting(header));
        assert_eq!((client.ip(), client.stop()), (ip("203.0.113.9"), StopReason::Untrusted));
    }
}

#[test]
fn without_a_header_or_a_trusted_block_the_peer_is_the_client() {
    let client = client_address(ip("10.0.0.1"), &["203.0.113.7"], &trusting(ProxyHeader::None));
    assert_eq!((client.ip(), client.stop()), (ip("10.0.0.1"), StopReason::Exhausted));
    let none_trusted = TrustedProxies::new(Vec::new(), ProxyHeader::XForwardedFor);
    let client = client_address(ip("10.0.0.1"), &["203.0.113.7"], &none_trusted);
    assert_eq!((client.ip(), client.stop()), (ip("10.0.0.1"), StopReason::Untrusted));
    assert_eq!(TrustedProxies::default(), TrustedProxies::new(Vec::new(), ProxyHeader::None));
}

#[test]
fn every_notation_of_an_address_is_parsed() {
    for (text, address) in [
        ("203.0.113.7", "203.0.113.7"),
        ("203.0.113.7:0", "203.0.113.7"),
        ("203.0.113.7:65535", "203.0.113.7"),
        ("203.0.113.7:_port-1", "203.0.113.7"),
        ("2001:DB8::1", "2001:db8::1"),
        ("2001:db8::1:4711", "2001:db8::1:4711"),
        ("[2001:db8::1]", "2001:db8::1"),
        ("[2001:db8:0:0::0:1]:4711", "2001:db8::1"),
        ("::ffff:203.0.113.7", "203.0.113.7"),
        ("[::ffff:cb00:7107]:80", "203.0.113.7"),
    ] {
        let expected = (address.to_owned(), StopReason::Untrusted);
        assert_eq!(x_forwarded_for(&[text]), expected, "{text}");
        assert_eq!(forwarded(&format!("for=\"{text}\"")), expected, "{text}");
        assert_eq!(forwarded(&format!("for={text}")), expected, "{text} without quotes");
    }
}

#[test]
fn an_invalid_address_ends_the_search() {
    for text in [
        "203.0.113",
        "203.0.113.7.1",
        "203.0.113.256",
        "203.0.113.07",
        "0xcb007107",
        "3405803783",
        "203.0.113.7:",
        "203.0.113.7:65536",
        "203.0.113.7:+80",
        "203.0.113.7:http",
        "203.0.113.7/32",
        "[203.0.113.7]",
        "[2001:db8::1",
        "2001:db8::1]",
        "[2001:db8::1]80",
        "[2001:db8::1]:",
        "[[2001:db8::1]]",
        "2001:db8:::1",
        "fe80::1%eth0",
        "[fe80::1%eth0]",
        "[fe80::1%1]:80",
        "unknown:",
        "unknown.example",
        "_",
        "_hid den",
        "localhost",
    ] {
        let expected = ("10.0.0.1".to_owned(), StopReason::Malformed);
        assert_eq!(x_forwarded_for(&["6.6.6.6", text]), expected, "{text}");
        assert_eq!(forwarded(&format!("for=6.6.6.6, for=\"{text}\"")), expected, "{text}");
    }
    let not_text: &[&[u8]] = &[b"6.6.6.6", b"\xff"];
    let client = client_address(ip("10.0.0.1"), not_text, &trusting(ProxyHeader::XForwardedFor));
    assert_eq!(client.stop(), StopReason::Malformed);
}

#[test]
fn forwarded_is_parsed_as_in_rfc_7239() {
    let client = ("203.0.113.7".to_owned(), StopReason::Untrusted);
    for value in [
        "for=203.0.113.7",
        "For=\"203.0.113.7\"",
        "FOR=203.0.113.7;proto=http;by=203.0.113.43",
        "proto=http;by=\"_x;for=6.6.6.6\";for=\"203.0.113.7:4711\"",
        "for=6.6.6.6, for=203.0.113.7",
        "for=203.0.113.7;host=\"a, for=6.6.6.6\"",
        "for=203.0.113.7;host=\"a\\\", for=6.6.6.6;x=\\\"b\"",
        "for=203.0.113.7;host=\"a\\\\\", for=10.0.0.2",
        "for=\"\\2\\0\\3.0.113.7\"",
        "for=203.0.113.7 ; proto=https",
        ";;for=203.0.113.7;",
        "for=203.0.113.7, for=\"[fd00::1]:80\";by=10.0.0.1, proto=https;for=10.0.0.2",
    ] {
        assert_eq!(forwarded(value), client, "{value}");
    }
}

#[test]
fn a_forwarded_element_without_an_address_ends_the_search() {
    for (element, stop) in [
        ("for=unknown", StopReason::Hidden),
        ("for=Unknown", StopReason::Hidden),
        ("for=\"_SEVKISEK\"", StopReason::Hidden),
        ("for=\"_gazonk:80\"", StopReason::Hidden),
        ("proto=https;by=10.0.0.1", StopReason::Hidden),
        (";", StopReason::Hidden),
        ("203.0.113.7", StopReason::Malformed),
        ("for", StopReason::Malformed),
        ("for=", StopReason::Malformed),
        ("for=\"\"", StopReason::Malformed),
        ("for =203.0.113.7", StopReason::Malformed),
        ("for= 203.0.113.7", StopReason::Malformed),
        ("=203.0.113.7", StopReason::Malformed),
        ("for=203.0.113.7;for=203.0.113.8", StopReason::Malformed),
        ("for=203.0.113.7 proto=http", StopReason::Malformed),
        ("for=\"203.0.113.7\"x", StopReason::Malformed),
        ("for=203.0.113.7;host=\"a", StopReason::Malformed),
        ("for=203.0.113.7;host=a\"b\"", StopReason::Malformed),
        ("for=\"203.0.113.7\\\"", StopReason::Malformed),
        ("for=\"203.0.113.7\\\\\"", StopReason::Malformed),
        ("for='203.0.113.7'", StopReason::Malformed),
    ] {
        let value = format!("for=6.6.6.6, {element}");
        assert_eq!(forwarded(&value), ("10.0.0.1".to_owned(), stop), "{value}");
    }
}

#[test]
fn an_open_quote_of_the_client_does_not_hide_a_proxy() {
    for mine in ["for=\"", "for=\"6.6.6.6", "x=\"\\", "for=6.6.6.6;x=\"a\\\"", "\"", "\\", ",\"\",\""] {
        let value = format!("{mine}, for=203.0.113.7, for=10.0.0.2");
        assert_eq!(forwarded(&value), ("203.0.113.7".to_owned(), StopReason::Untrusted), "{value}");
    }
}

#[test]
fn at_most_32_elements_are_read() {
    let hops = |count: usize| vec!["10.0.0.2"; count].join(",");
    let ends_at = |value: &str| x_forwarded_for(&[value]).1;
    assert_eq!(ends_at(&format!("203.0.113.7,{}", hops(31))), StopReason::Untrusted);
    assert_eq!(ends_at(&format!("203.0.113.7,{}", hops(32))), StopReason::TooLong);
    assert_eq!(ends_at(&hops(32)), StopReason::Exhausted);
    assert_eq!(ends_at(&format!("203.0.113.7{}", ",".repeat(31))), StopReason::Untrusted);
    assert_eq!(ends_at(&format!("203.0.113.7{}", ",".repeat(32))), StopReason::TooLong);
    let lines = ["203.0.113.7"].into_iter().chain([""; 32]).collect::<Vec<_>>();
    assert_eq!(x_forwarded_for(&lines).1, StopReason::TooLong);
}

#[test]
fn at_most_8_kib_are_read() {
    assert_eq!(BYTES_MAX, 8_192);
    let blanks = |count: usize| " ".repeat(count);
    assert_eq!(
        x_forwarded_for(&[&format!("203.0.113.7{}", blanks(BYTES_MAX - 11))]).1,
        StopReason::Untrusted
    );
    assert_eq!(x_forwarded_for(&[&format!("203.0.113.7{}", blanks(BYTES_MAX - 10))]).1, StopReason::TooLong);
    let half = blanks(BYTES_MAX / 2);
    assert_eq!(x_forwarded_for(&["203.0.113.7", &half]).1, StopReason::Untrusted);
    assert_eq!(x_forwarded_for(&["203.0.113.7", &half, &half]).1, StopReason::TooLong);
    let mine = "6.6.6.6,".repeat(100_000);
    assert_eq!(x_forwarded_for(&[&mine, "203.0.113.7, 10.0.0.2"]).1, StopReason::Untrusted);
}

#[test]
fn an_address_next_to_an_unreadable_element_is_not_certain() {
    let client = |value| client_address(ip("10.0.0.1"), &[value], &trusting(ProxyHeader::XForwardedFor));
    assert!(client("203.0.113.7").is_certain());
    assert!(client("10.0.0.7").is_certain());
    let long = "10.0.0.2,".repeat(40);
    for value in ["unknown", "bogus", long.as_str()] {
        assert!(!client(value).is_certain(), "{value}");
    }
}

#[test]
fn debug_prints_no_address() {
    let client = client_address::<&str>(ip("203.0.113.7"), &[], &TrustedProxies::default());
    assert_eq!(format!("{client:?}"), "ClientAddress { stop: Untrusted, .. }");
}

#[test]
fn blocks_are_computed_from_the_canonical_address() {
    for (v4, v6, address, block) in [
        (32, 64, "203.0.113.7", "203.0.113.7"),
        (32, 64, "2001:DB8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        (32, 64, "::ffff:203.0.113.7", "203.0.113.7"),
        (24, 48, "203.0.113.255", "203.0.113.0/24"),
        (24, 48, "2001:db8:1:2:3:4:5:6", "2001:db8:1::/48"),
        (24, 48, "::ffff:203.0.113.255", "203.0.113.0/24"),
        (25, 128, "203.0.113.255", "203.0.113.128/25"),
        (25, 128, "2001:db8::0:1", "2001:db8::1"),
        (0, 0, "203.0.113.255", "0.0.0.0/0"),
        (0, 0, "2001:db8::1", "::/0"),
        (31, 127, "2001:db8::1", "2001:db8::/127"),
    ] {
        let prefixes = Prefixes::new(v4, v6).expect("valid lengths");
        assert_eq!(prefixes.block(ip(address)).to_string(), block, "{address}");
    }
    assert_eq!(Prefixes::default(), Prefixes::new(32, 64).expect("valid lengths"));
}

#[test]
fn a_prefix_longer_than_the_address_is_rejected() {
    let error = |v4, v6| Prefixes::new(v4, v6).expect_err("too long").to_string();
    assert_eq!(error(33, 64), "the prefix of an IPv4 address has a length from 0 to 32, not 33");
    assert_eq!(error(32, 129), "the prefix of an IPv6 address has a length from 0 to 128, not 129");
}

#[test]
fn a_block_has_one_canonical_text() {
    for (text, canonical) in [
        ("10.0.0.0/8", "10.0.0.0/8"),
        ("10.0.0.1", "10.0.0.1"),
        ("10.0.0.1/32", "10.0.0.1"),
        ("0.0.0.0/0", "0.0.0.0/0"),
        ("2001:DB8:0::/32", "2001:db8::/32"),
        ("::1/128", "::1"),
        ("::/0", "::/0"),
        ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("::ffff:0:0/96", "0.0.0.0/0"),
    ] {
        let block: Cidr = text.parse().expect(text);
        assert_eq!(block.to_string(), canonical, "{text}");
        assert_eq!(canonical.parse(), Ok(block), "{text}");
    }
}

#[test]
fn an_invalid_block_is_rejected_with_the_valid_format() {
    let length = |text: &str, family, max| CidrError::PrefixLength { found: text.to_owned(), family, max };
    for text in ["10.0.0.0/33", "10.0.0.0/", "10.0.0.0/-1", "10.0.0.0/+8", "10.0.0.0/08", "10.0.0.0/8/8"] {
        assert_eq!(text.parse::<Cidr>(), Err(length(text, "IPv4", 32)));
    }
    for text in ["::/129", "::/256", "::/64 ", "::/x"] {
        assert_eq!(text.parse::<Cidr>(), Err(length(text, "IPv6", 128)));
    }
    for text in ["", "/", "/8", "10/8", "10.0.0/24", " 10.0.0.0/8", "10.0.0.0:80", "[::1]", "proxy.example"] {
        assert_eq!(text.parse::<Cidr>(), Err(CidrError::NotAnAddress { found: text.to_owned() }));
    }
    let zone = "fe80::1%eth0/64";
    assert_eq!(zone.parse::<Cidr>(), Err(CidrError::Zone { found: zone.to_owned() }));
    for (text, block) in
        [("10.0.0.1/8", "10.0.0.0/8"), ("2001:db8::1/32", "2001:db8::/32"), ("::ffff:0:0/80", "::/80")]
    {
        let error = text.parse::<Cidr>().expect_err(text);
        assert!(matches!(error, CidrError::BitsBeyondPrefix { .. }), "{error}");
        assert!(error.to_string().ends_with(&format!("`{block}`")), "{error}");
    }
    let message = "10.0.0.0/33".parse::<Cidr>().expect_err("too long").to_string();
    assert_eq!(message, "\"10.0.0.0/33\": the prefix of an IPv4 address has a length from 0 to 32");
    let message = "proxy".parse::<Cidr>().expect_err("a name").to_string();
    assert!(message.contains("`10.0.0.0/8`") && message.contains("`2001:db8::/32`"), "{message}");
    assert!("x".repeat(10_000).parse::<Cidr>().expect_err("a long name").to_string().len() < 400);
}

#[test]
fn an_ipv4_block_contains_mapped_addresses_and_an_ipv6_block_does_not() {
    let holds = |block: &str, address| block.parse::<Cidr>().expect(block).contains(ip(address));
    assert!(holds("10.0.0.0/8", "::ffff:10.1.2.3"));
    assert!(!holds("10.0.0.0/8", "::ffff:11.1.2.3"));
    assert!(holds("::ffff:10.0.0.0/104", "10.1.2.3"));
    assert!(!holds("::/0", "::ffff:10.1.2.3"));
    assert!(!holds("::/0", "10.1.2.3"));
    assert!(!holds("0.0.0.0/0", "::1"));
    assert!(holds("2001:db8::/33", "2001:db8:7fff::1"));
    assert!(!holds("2001:db8::/33", "2001:db8:8000::1"));
    let peer = client_address(ip("::ffff:10.0.0.1"), &["203.0.113.7"], &trusting(ProxyHeader::XForwardedFor));
    assert_eq!(peer.ip(), ip("203.0.113.7"));
}

/// Arbitrary client input, made of everything that has a meaning in either header.
fn hostile() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "\"",
        "\\",
        ",",
        ";",
        "=",
        " ",
        "for=",
        "for=\"",
        "by=",
        "[",
        "]",
        ":",
        "6.6.6.6",
        "10.0.0.9",
        "::1",
        "[fd00::2]",
        "unknown",
        "_x",
        "%",
        "é",
    ]);
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

fn any_ip() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<u32>().prop_map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits))),
        any::<u128>().prop_map(|bits| IpAddr::V6(Ipv6Addr::from_bits(bits))),
        any::<u32>().prop_map(|bits| IpAddr::V6(Ipv4Addr::from_bits(bits).to_ipv6_mapped())),
        (0..8_u32).prop_map(|bits| IpAddr::V4(Ipv4Addr::from_bits(10 << 24 | bits))),
    ]
}

/// Formats an address as a proxy may do it.
fn written(header: ProxyHeader, address: IpAddr, style: u8) -> String {
    let bare = match (address, style % 3) {
        (IpAddr::V6(v6), 1) => format!("[{v6}]:4711"),
        (IpAddr::V6(v6), _) => format!("[{v6}]"),
        (IpAddr::V4(v4), 1) => format!("{v4}:80"),
        (IpAddr::V4(v4), _) => v4.to_string(),
    };
    match (header, style / 3 % 4) {
        (ProxyHeader::Forwarded, 0) => format!("for=\"{bare}\""),
        (ProxyHeader::Forwarded, 1) => format!("proto=https;For=\"{bare}\""),
        (ProxyHeader::Forwarded, 2) => format!("FOR=\"{bare}\";host=\"a\\\\\\\", for=6.6.6.6\""),
        (ProxyHeader::Forwarded, _) => format!("for=\"\\{bare}\"; by=_me"),
        (_, _) => bare,
    }
}

/// Finds the client in a list of addresses, leftmost first.
fn naive(peer: IpAddr, list: &[IpAddr], proxies: &TrustedProxies) -> IpAddr {
    let chain: Vec<IpAddr> = list.iter().copied().chain([peer]).map(|ip| ip.to_canonical()).collect();
    let is_client = |address: &&IpAddr| !proxies.cidrs.iter().any(|cidr| cidr.contains(**address));
    chain.iter().rev().find(is_client).copied().unwrap_or(chain[0])
}

fn header() -> impl Strategy<Value = ProxyHeader> {
    prop::sample::select(vec![ProxyHeader::Forwarded, ProxyHeader::XForwardedFor])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 5_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// The client sends anything; the outer proxy appends the client's address, inner proxies append those of
    /// the proxies before them, each to the last value or as a separate value.
    #[test]
    fn a_spoofed_header_never_changes_the_client(
        header in header(),
        mut values in prop::collection::vec(hostile(), 0..4),
        client in any_ip(),
        inner in prop::collection::vec(0..1_000_u32, 0..5),
        styles in prop::collection::vec(any::<u8>(), 6),
        as_own_value in prop::collection::vec(any::<bool>(), 6),
    ) {
        let proxies = trusting(header);
        let client = if proxies.trusts(client) { ip("203.0.113.7") } else { client };
        let inner = inner.into_iter().map(|bits| IpAddr::V4(Ipv4Addr::from_bits(10 << 24 | bits)));
        for (hop, address) in [client].into_iter().chain(inner).enumerate() {
            let element = written(header, address, styles[hop]);
            match values.last_mut() {
                Some(last) if !as_own_value[hop] => last.extend([", ", &element]),
                _ => values.push(element),
            }
        }
        let found = client_address(ip("10.0.0.1"), &values, &proxies);
        prop_assert_eq!((found.ip(), found.stop()), (client.to_canonical(), StopReason::Untrusted), "{:?}", values);
    }

    #[test]
    fn a_valid_header_gives_the_same_client_as_a_list_of_addresses(
        header in header(),
        list in prop::collection::vec((any_ip(), any::<u8>()), 0..10),
        peer in any_ip(),
    ) {
        let proxies = trusting(header);
        let value = list.iter().map(|&(ip, style)| written(header, ip, style)).collect::<Vec<_>>().join(", ");
        let addresses: Vec<IpAddr> = list.iter().map(|&(ip, _)| ip).collect();
        let found = client_address(peer, &[&value], &proxies);
        prop_assert_eq!(found.ip(), naive(peer, &addresses, &proxies), "{}", value);
        prop_assert!(found.is_certain());
    }

    #[test]
    fn a_mapped_address_equals_its_ipv4_address_everywhere(bits: u32, block_bits: u32, v4 in 0..=32_u8, v6 in 0..=128_u8) {
        let plain = Ipv4Addr::from_bits(bits);
        let (plain, mapped) = (IpAddr::V4(plain), IpAddr::V6(plain.to_ipv6_mapped()));
        let prefixes = Prefixes::new(v4, v6).unwrap();
        prop_assert_eq!(prefixes.block(plain), prefixes.block(mapped));
        let other = prefixes.block(IpAddr::V4(Ipv4Addr::from_bits(block_bits)));
        prop_assert_eq!(other.contains(plain), other.contains(mapped));
        let proxies = TrustedProxies::new(vec![other], ProxyHeader::XForwardedFor);
        let client = |peer: IpAddr, named: IpAddr| client_address(peer, &[named.to_string()], &proxies);
        prop_assert_eq!(client(plain, mapped), client(mapped, plain));
    }

    /// Two addresses are in one block iff their first bits are equal.
    #[test]
    fn a_block_is_a_prefix_and_round_trips_through_its_text(a: u128, b: u128, same in 0..=128_u8, v6 in 0..=128_u8) {
        let low = u128::MAX.checked_shr(u32::from(same)).unwrap_or(0);
        let [left, right] = [a, a & !low | b & low].map(|bits| IpAddr::V6(Ipv6Addr::from_bits(bits)));
        prop_assume!(left.to_canonical() == left && right.to_canonical() == right);
        let block = Prefixes::new(32, v6).unwrap().block(left);
        let differs_at = ((a ^ b) & low).leading_zeros();
        prop_assert_eq!(block.contains(right), differs_at >= u32::from(v6));
        prop_assert_eq!(block.to_string().parse(), Ok(block));
    }
}
