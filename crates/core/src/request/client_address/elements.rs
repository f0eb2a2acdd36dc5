//! Reads the elements of a forwarded header from right to left, and the addresses in them.
//!
//! From the right, the end of an element depends only on text that proxies appended. From the left, a client could open a
//! quote that hides what the proxies append.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::borrow::Cow;

use super::{BYTES_MAX, ELEMENTS_MAX, ProxyHeader, StopReason};

/// The elements of all values of a header, as one list.
pub(super) struct Elements<'v, V> {
    header: ProxyHeader,
    /// Values that have not been read yet.
    values: &'v [V],
    /// The unread part of the current value.
    value: Option<&'v [u8]>,
    elements_left: usize,
    bytes_left: usize,
}

impl<'v, V: AsRef<[u8]>> Elements<'v, V> {
    pub(super) fn new(header: ProxyHeader, values: &'v [V]) -> Elements<'v, V> {
        let values = if header == ProxyHeader::None { &[] } else { values };
        Elements { header, values, value: None, elements_left: ELEMENTS_MAX, bytes_left: BYTES_MAX }
    }

    /// Returns the address in the next element, in canonical form, or why it has none. Empty elements are skipped
    /// (RFC 9110, 5.6.1).
    pub(super) fn next_from_the_right(&mut self) -> Option<Result<IpAddr, StopReason>> {
        loop {
            let value = match self.value.take() {
                Some(value) => value,
                None => {
                    let (last, values) = self.values.split_last()?;
                    self.values = values;
                    last.as_ref()
                }
            };
            if self.elements_left == 0 {
                return Some(Err(StopReason::TooLong));
            }
            self.elements_left -= 1;
            let skipped = value.len().saturating_sub(self.bytes_left);
            let readable = &value[skipped..];
            let element = match last_comma(readable) {
                Some(comma) => {
                    self.value = Some(&value[..skipped + comma]);
                    &readable[comma + 1..]
                }
                None if skipped > 0 => return Some(Err(StopReason::TooLong)),
                None => readable,
            };
            self.bytes_left = self.bytes_left.saturating_sub(element.len() + 1);
            let element = trim(element);
            if !element.is_empty() {
                return Some(match self.header {
                    ProxyHeader::Forwarded => forwarded_for(element).and_then(|node| address(&node)),
                    ProxyHeader::XForwardedFor | ProxyHeader::None => address(element),
                });
            }
        }
    }
}

/// Finds the last comma outside quotes. An address contains no quote, so this also works for `X-Forwarded-For`.
fn last_comma(text: &[u8]) -> Option<usize> {
    let mut quoted = false;
    text.iter().enumerate().rev().find_map(|(at, &byte)| {
        if byte == b'"' && !is_escaped(&text[..at]) {
            quoted = !quoted;
        }
        (byte == b',' && !quoted).then_some(at)
    })
}

/// Whether the byte after `before` is escaped.
fn is_escaped(before: &[u8]) -> bool {
    before.iter().rev().take_while(|&&byte| byte == b'\\').count() % 2 == 1
}

/// Returns the value of the parameter `for` in one element of `Forwarded`.
fn forwarded_for(element: &[u8]) -> Result<Cow<'_, [u8]>, StopReason> {
    let mut found = None;
    let mut rest = element;
    while !rest.is_empty() {
        let name_len = rest.iter().take_while(|&&byte| is_token(byte)).count();
        let (name, behind) = rest.split_at(name_len);
        let behind = match behind.strip_prefix(b"=") {
            Some(behind) if !name.is_empty() => {
                let (value, behind) = value(behind)?;
                if name.eq_ignore_ascii_case(b"for") && found.replace(value).is_some() {
                    return Err(StopReason::Malformed);
                }
                behind
            }
            // The grammar allows empty pairs between semicolons.
            None if name.is_empty() => behind,
            _ => return Err(StopReason::Malformed),
        };
        rest = match trim(behind) {
            [] => &[],
            [b';', behind @ ..] => trim(behind),
            _ => return Err(StopReason::Malformed),
        };
    }
    found.ok_or(StopReason::Hidden)
}

/// Reads a token or a quoted string, and returns what follows. Colons and brackets must be quoted, but not every proxy
/// does so.
fn value(text: &[u8]) -> Result<(Cow<'_, [u8]>, &[u8]), StopReason> {
    let Some(inside) = text.strip_prefix(b"\"") else {
        let len = text.iter().take_while(|&&byte| is_token(byte) || b":[]".contains(&byte)).count();
        let (value, behind) = text.split_at(len);
        return if value.is_empty() {
            Err(StopReason::Malformed)
        } else {
            Ok((Cow::Borrowed(value), behind))
        };
    };
    let ends = |&at: &usize| inside[at] == b'"' && !is_escaped(&inside[..at]);
    let end = (0..inside.len()).find(ends).ok_or(StopReason::Malformed)?;
    let (value, behind) = (&inside[..end], &inside[end + 1..]);
    if !value.contains(&b'\\') {
        return Ok((Cow::Borrowed(value), behind));
    }
    let mut plain = Vec::with_capacity(value.len());
    let mut bytes = value.iter().copied();
    while let Some(byte) = bytes.next() {
        // A backslash is always followed by a byte, because an escaped quote does not end the string.
        plain.extend(if byte == b'\\' { bytes.next() } else { Some(byte) });
    }
    Ok((Cow::Owned(plain), behind))
}

/// Parses `1.2.3.4`, `1.2.3.4:80`, `2001:db8::1`, `[2001:db8::1]` or `[2001:db8::1]:80`. An address with a zone is
/// invalid, because the zone is only valid on the proxy.
fn address(node: &[u8]) -> Result<IpAddr, StopReason> {
    let node = std::str::from_utf8(node).map_err(|_| StopReason::Malformed)?;
    if let Some(inside) = node.strip_prefix('[') {
        let (address, port) = inside.split_once(']').ok_or(StopReason::Malformed)?;
        let address: Ipv6Addr = address.parse().map_err(|_| StopReason::Malformed)?;
        let is_whole = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
        return if is_whole { Ok(IpAddr::V6(address).to_canonical()) } else { Err(StopReason::Malformed) };
    }
    if let Ok(address) = node.parse::<Ipv6Addr>() {
        return Ok(IpAddr::V6(address).to_canonical());
    }
    let (name, port) = node.split_once(':').map_or((node, None), |(name, port)| (name, Some(port)));
    if !port.is_none_or(is_port) {
        return Err(StopReason::Malformed);
    }
    if name.eq_ignore_ascii_case("unknown") || is_obfuscated(name) {
        return Err(StopReason::Hidden);
    }
    name.parse::<Ipv4Addr>().map(IpAddr::V4).map_err(|_| StopReason::Malformed)
}

fn is_port(text: &str) -> bool {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok();
    is_number || is_obfuscated(text)
}

/// Whether this is an obfuscated identifier (RFC 7239, 6.3).
fn is_obfuscated(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    text.strip_prefix('_').is_some_and(|name| !name.is_empty() && name.bytes().all(is_allowed))
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Removes spaces and tabs at both ends.
fn trim(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = text {
        text = rest;
    }
    text
}
