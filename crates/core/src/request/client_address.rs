//! The client's address: the peer of the connection, or the address that trusted proxies name in one chosen header.
//!
//! This module owns the list of trusted proxies, the two headers, and the address blocks that count as one client. The
//! edge accepts connections and reads requests.
//!
//! Each proxy appends the address of its caller to the header. So only the right end is known to come from a trusted
//! proxy, and the client may have invented everything to the left of the first untrusted address. The search therefore
//! starts at the peer and goes from right to left.
//!
//! ```
//! use tollgate_core::request::client_address::{Prefixes, ProxyHeader, TrustedProxies, client_address};
//!
//! let proxies = TrustedProxies::new(vec!["10.0.0.0/8".parse()?], ProxyHeader::XForwardedFor);
//! let peer = "10.0.0.2".parse()?;
//! // The client sent the first address. The outer proxy added the second, the inner proxy the third.
//! let client = client_address(peer, &["192.0.2.1", "203.0.113.7, 10.0.0.1"], &proxies);
//! assert_eq!(client.block(Prefixes::default()).to_string(), "203.0.113.7");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod cidr;
mod elements;

use core::net::IpAddr;
use std::fmt;

pub use cidr::{Cidr, CidrError, PrefixTooLong, Prefixes};
use elements::Elements;

/// Largest number of header elements that are read.
pub const ELEMENTS_MAX: usize = 32;

/// Largest number of header bytes that are read, over all its values.
pub const BYTES_MAX: usize = 8 * 1024;

/// The header in which trusted proxies name their callers. At most one: a proxy passes on headers that it does not know,
/// so a second one could come from the client.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum ProxyHeader {
    /// No header is trusted.
    #[default]
    None,
    /// `Forwarded` (RFC 7239).
    Forwarded,
    /// `X-Forwarded-For`.
    XForwardedFor,
}

/// Which proxies are trusted, and which header they set.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TrustedProxies {
    cidrs: Vec<Cidr>,
    header: ProxyHeader,
}

/// The client's address in canonical form, and why the search ended there.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClientAddress {
    address: IpAddr,
    stop: StopReason,
}

/// Why the search from the peer to the client ended.
///
/// After [`Hidden`](StopReason::Hidden), [`Malformed`](StopReason::Malformed) and [`TooLong`](StopReason::TooLong) the
/// address is that of the last known proxy. An unreadable element does not come from a trusted proxy or names no address,
/// and the client may have written everything to the left of it. Such requests share the limit of that proxy, but must
/// not get its privileges: see [`is_certain`](ClientAddress::is_certain).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum StopReason {
    /// The address is not a trusted proxy.
    Untrusted,
    /// The address is a trusted proxy, and the header has no more elements.
    Exhausted,
    /// The next element hides the address: `unknown`, `_name`, or no `for`.
    Hidden,
    /// The next element is not a valid address.
    Malformed,
    /// The header is longer than [`ELEMENTS_MAX`] or [`BYTES_MAX`].
    TooLong,
}

/// Returns the client of a request from `peer`. `values` are the chosen header's values, in the order received.
///
/// Starting at the peer, while the address is a trusted proxy, the next element from the right is its caller. The first
/// untrusted address is the client. Pass all values, including those that are not text: the search would skip a value
/// that is left out.
pub fn client_address<V: AsRef<[u8]>>(peer: IpAddr, values: &[V], proxies: &TrustedProxies) -> ClientAddress {
    let mut address = peer.to_canonical();
    let mut elements = Elements::new(proxies.header, values);
    let stop = loop {
        if !proxies.trusts(address) {
            break StopReason::Untrusted;
        }
        match elements.next_from_the_right() {
            Some(Ok(caller)) => address = caller,
            Some(Err(stop)) => break stop,
            None => break StopReason::Exhausted,
        }
    };
    ClientAddress { address, stop }
}

impl ProxyHeader {
    /// Returns the name of the header, in lower case.
    pub const fn name(self) -> Option<&'static str> {
        match self {
            ProxyHeader::None => None,
            ProxyHeader::Forwarded => Some("forwarded"),
            ProxyHeader::XForwardedFor => Some("x-forwarded-for"),
        }
    }
}

impl TrustedProxies {
    /// Trusts the proxies in these blocks, and this header.
    pub const fn new(cidrs: Vec<Cidr>, header: ProxyHeader) -> TrustedProxies {
        TrustedProxies { cidrs, header }
    }

    /// Returns the trusted address blocks.
    pub fn cidrs(&self) -> &[Cidr] {
        &self.cidrs
    }

    /// Returns the header.
    pub const fn header(&self) -> ProxyHeader {
        self.header
    }

    /// Whether this is the address of a trusted proxy.
    pub fn trusts(&self, address: IpAddr) -> bool {
        self.cidrs.iter().any(|cidr| cidr.contains(address))
    }
}

impl ClientAddress {
    /// Returns the address. An IPv4-mapped IPv6 address is converted to IPv4.
    pub const fn ip(&self) -> IpAddr {
        self.address
    }

    /// Returns why the search ended at this address.
    pub const fn stop(&self) -> StopReason {
        self.stop
    }

    /// Whether the header was readable up to this address. Otherwise the address belongs to a proxy, the client is
    /// behind it, and a rule that favours the proxy's address must not apply.
    pub const fn is_certain(&self) -> bool {
        matches!(self.stop, StopReason::Untrusted | StopReason::Exhausted)
    }

    /// Returns the address block that counts as one client. Its text is the value of the attribute `ip`.
    pub fn block(&self, prefixes: Prefixes) -> Cidr {
        prefixes.block(self.address)
    }
}

impl fmt::Debug for ClientAddress {
    /// Omits the address, which must not be logged.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientAddress").field("stop", &self.stop).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
