//! Address blocks in CIDR notation.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::fmt;
use std::str::FromStr;

/// An address block: all addresses with the same first bits.
///
/// Equal blocks are equal values and have equal text: no bit is set beyond the prefix, and a block of IPv4-mapped IPv6
/// addresses becomes the IPv4 block. The text is `address/length`, or the address alone if the block has one address.
/// IPv6 is formatted as in RFC 5952.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Cidr {
    first: IpAddr,
    prefix: u8,
}

/// How many leading bits of an address identify a client.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Prefixes {
    v4: u8,
    v6: u8,
}

/// The text is not an address block.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CidrError {
    /// There is no address before the `/`.
    #[error(
        "invalid address block {found:?}; write an IPv4 or IPv6 address, alone or followed by `/` and the \
         length of a prefix, such as `10.0.0.0/8` or `2001:db8::/32`"
    )]
    NotAnAddress {
        /// The text.
        found: String,
    },
    /// The address has a zone.
    #[error("{found:?} has a zone, which is valid on one machine only; leave out `%` and what follows")]
    Zone {
        /// The text.
        found: String,
    },
    /// The prefix length is invalid.
    #[error("{found:?}: the prefix of an {family} address has a length from 0 to {max}")]
    PrefixLength {
        /// The text.
        found: String,
        /// IPv4 or IPv6.
        family: &'static str,
        /// The largest prefix length.
        max: u8,
    },
    /// The address is not the first of its block.
    #[error("{found:?} has bits set beyond its prefix; the block with that address is `{block}`")]
    BitsBeyondPrefix {
        /// The text.
        found: String,
        /// The block of this length that contains the address.
        block: Cidr,
    },
}

/// The prefix is longer than the address.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the prefix of an {family} address has a length from 0 to {max}, not {found}")]
pub struct PrefixTooLong {
    family: &'static str,
    found: u8,
    max: u8,
}

const V4_BITS: u8 = 32;
const V6_BITS: u8 = 128;
/// The prefix of all IPv4-mapped IPv6 addresses.
const MAPPED_BITS: u8 = V6_BITS - V4_BITS;

/// Largest number of characters of the input that an error repeats.
const SHOWN_MAX: usize = 80;

impl Cidr {
    /// Whether the block contains the address. An IPv4-mapped IPv6 address counts as IPv4 and is in no IPv6 block.
    pub fn contains(&self, address: IpAddr) -> bool {
        clear_host_bits(address.to_canonical(), self.prefix) == self.first
    }

    /// Whether the block contains every address of another block.
    pub fn contains_block(&self, other: &Cidr) -> bool {
        self.first.is_ipv4() == other.first.is_ipv4()
            && self.prefix <= other.prefix
            && clear_host_bits(other.first, self.prefix) == self.first
    }

    /// Whether an address is in both blocks.
    pub fn overlaps(&self, other: &Cidr) -> bool {
        self.contains_block(other) || other.contains_block(self)
    }

    /// Returns the first address of the block.
    pub const fn first(&self) -> IpAddr {
        self.first
    }

    /// Returns the prefix length in bits.
    pub const fn prefix(&self) -> u8 {
        self.prefix
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.prefix == bits_of(self.first) {
            self.first.fmt(f)
        } else {
            write!(f, "{}/{}", self.first, self.prefix)
        }
    }
}

impl FromStr for Cidr {
    type Err = CidrError;

    fn from_str(text: &str) -> Result<Cidr, CidrError> {
        let found = || text.chars().take(SHOWN_MAX).collect::<String>();
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        if address.contains('%') {
            return Err(CidrError::Zone { found: found() });
        }
        let address: IpAddr = address.parse().map_err(|_| CidrError::NotAnAddress { found: found() })?;
        let max = bits_of(address);
        let prefix = match length {
            None => max,
            Some(length) => decimal(length)
                .filter(|&length| length <= max)
                .ok_or_else(|| CidrError::PrefixLength { found: found(), family: family_of(address), max })?,
        };
        let (address, prefix) = match (address, address.to_canonical()) {
            (IpAddr::V6(_), v4 @ IpAddr::V4(_)) if prefix >= MAPPED_BITS => (v4, prefix - MAPPED_BITS),
            _ => (address, prefix),
        };
        let block = Cidr { first: clear_host_bits(address, prefix), prefix };
        if block.first == address {
            Ok(block)
        } else {
            Err(CidrError::BitsBeyondPrefix { found: found(), block })
        }
    }
}

impl Prefixes {
    /// Sets the number of bits for IPv4, at most 32, and for IPv6, at most 128.
    pub const fn new(v4: u8, v6: u8) -> Result<Prefixes, PrefixTooLong> {
        if v4 > V4_BITS {
            return Err(PrefixTooLong { family: "IPv4", found: v4, max: V4_BITS });
        }
        if v6 > V6_BITS {
            return Err(PrefixTooLong { family: "IPv6", found: v6, max: V6_BITS });
        }
        Ok(Prefixes { v4, v6 })
    }

    /// Returns the block that contains this address. An IPv4-mapped IPv6 address is converted to IPv4 first, because an
    /// IPv6 prefix would put all of them into one block.
    pub fn block(self, address: IpAddr) -> Cidr {
        let address = address.to_canonical();
        let prefix = if address.is_ipv4() { self.v4 } else { self.v6 };
        Cidr { first: clear_host_bits(address, prefix), prefix }
    }
}

/// A whole IPv4 address, and the first 64 bits of an IPv6 address. A client can choose the other bits freely.
impl Default for Prefixes {
    fn default() -> Prefixes {
        Prefixes { v4: V4_BITS, v6: 64 }
    }
}

/// Clears all bits beyond the prefix.
fn clear_host_bits(address: IpAddr, prefix: u8) -> IpAddr {
    let beyond = u32::from(bits_of(address).saturating_sub(prefix));
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(beyond).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() & mask))
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(beyond).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & mask))
        }
    }
}

const fn bits_of(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => V4_BITS,
        IpAddr::V6(_) => V6_BITS,
    }
}

const fn family_of(address: IpAddr) -> &'static str {
    match address {
        IpAddr::V4(_) => "IPv4",
        IpAddr::V6(_) => "IPv6",
    }
}

/// Parses a number without a sign and without leading zeros.
fn decimal(text: &str) -> Option<u8> {
    let plain = text == "0" || !text.starts_with(['0', '+']);
    text.parse().ok().filter(|_| plain)
}
