//! Who is asking, as an address: the peer of the connection, or whom trusted proxies name in one chosen header.
//!
//! Owns the boundary of trust, the two headers, and the blocks of addresses that count as one client. Accepting
//! connections and reading requests is the edge's part.
//!
//! Proxies write a header from left to right: each appends the address it was called from. So only the right end
//! is known to come from a proxy of ours, and everything to the left of the first address that is not a trusted
//! proxy may have been made up by the client. The walk therefore starts at the peer and goes from right to left.
//!
//! ```
//! use tollgate_core::client_address::{Prefixes, ProxyHeader, TrustedProxies, client_address};
//!
//! let proxies = TrustedProxies::new(vec!["10.0.0.0/8".parse()?], ProxyHeader::XForwardedFor);
//! let peer = "10.0.0.2".parse()?;
//! // The client wrote the first address itself. The outer proxy added the second, the inner proxy the third.
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

/// How many elements of a header are looked at.
pub const ELEMENTS_MAX: usize = 32;

/// How many bytes of a header are looked at, over all its values.
pub const BYTES_MAX: usize = 8 * 1024;

/// The header in which trusted proxies name their callers. There is one at most: a proxy passes on what it does not
/// know, so a second header would be read as the client wrote it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum ProxyHeader {
    /// No header is believed.
    #[default]
    None,
    /// `Forwarded` (RFC 7239).
    Forwarded,
    /// `X-Forwarded-For`.
    XForwardedFor,
}

/// Which proxies are believed, and in which header.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TrustedProxies {
    cidrs: Vec<Cidr>,
    header: ProxyHeader,
}

/// The address to hold responsible for a request, in canonical form, and why it is that one.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClientAddress {
    address: IpAddr,
    stop: StopReason,
}

/// Why the walk from the peer to the client ended where it did.
///
/// After [`Hidden`](StopReason::Hidden), [`Malformed`](StopReason::Malformed) and [`TooLong`](StopReason::TooLong) the address is that
/// of the last proxy which could still be told: an element that cannot be read was not written by a proxy of ours,
/// or says nothing, and whatever stands to the left of it is the client's own word. Such requests share the limit of
/// that proxy, and must not be given what the proxy itself may do: see [`is_certain`](ClientAddress::is_certain).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum StopReason {
    /// The address is not that of a trusted proxy.
    Untrusted,
    /// The address is inside the trusted blocks, and nothing says who called it.
    Exhausted,
    /// The next element withholds the address: `unknown`, `_name`, or no `for` at all.
    Hidden,
    /// The next element is not an address in any known form.
    Malformed,
    /// The header is longer than [`ELEMENTS_MAX`] or [`BYTES_MAX`].
    TooLong,
}

/// The client of a request that came from `peer` with these `values` of the chosen header, in the order received.
///
/// From the peer on, as long as the address is a trusted proxy's, the next element from the right is the address
/// that called it. The first address that is not trusted is the client. All values must be given, also those that
/// are not text: one that is left out would let the walk pass over it.
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
    /// The name of the header, in lower case.
    pub const fn name(self) -> Option<&'static str> {
        match self {
            ProxyHeader::None => None,
            ProxyHeader::Forwarded => Some("forwarded"),
            ProxyHeader::XForwardedFor => Some("x-forwarded-for"),
        }
    }
}

impl TrustedProxies {
    /// Proxies in these blocks are believed in this header.
    pub const fn new(cidrs: Vec<Cidr>, header: ProxyHeader) -> TrustedProxies {
        TrustedProxies { cidrs, header }
    }

    /// The blocks.
    pub fn cidrs(&self) -> &[Cidr] {
        &self.cidrs
    }

    /// The header.
    pub const fn header(&self) -> ProxyHeader {
        self.header
    }

    /// Whether this is the address of a proxy that is believed.
    pub fn trusts(&self, address: IpAddr) -> bool {
        self.cidrs.iter().any(|cidr| cidr.contains(address))
    }
}

impl ClientAddress {
    /// The address. An IPv4-mapped IPv6 address has become IPv4.
    pub const fn ip(&self) -> IpAddr {
        self.address
    }

    /// Why it is this one.
    pub const fn stop(&self) -> StopReason {
        self.stop
    }

    /// Whether everything up to this address could be read. Otherwise the address is a proxy's, the client is
    /// somebody behind it, and a rule that favours the proxy's address must not apply.
    pub const fn is_certain(&self) -> bool {
        matches!(self.stop, StopReason::Untrusted | StopReason::Exhausted)
    }

    /// The block that is counted as one client. Its text is the value of the attribute `ip`.
    pub fn block(&self, prefixes: Prefixes) -> Cidr {
        prefixes.block(self.address)
    }
}

impl fmt::Debug for ClientAddress {
    /// Without the address, which has no place in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientAddress").field("stop", &self.stop).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
