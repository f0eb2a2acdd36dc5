//! Blocks of addresses that share their first bits, and their text.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::fmt;
use std::str::FromStr;

/// All addresses that share their first bits. No bit is set beyond the prefix, and a block of IPv4-mapped IPv6
/// addresses is the block of the IPv4 addresses, so that equal blocks are equal values and have equal text.
///
/// The text is the address alone if the block holds one address, else `address/length`; IPv6 as RFC 5952 has it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Cidr {
    first: IpAddr,
    prefix: u8,
}

/// How many leading bits of an address tell clients apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Prefixes {
    v4: u8,
    v6: u8,
}

/// Text that is no block of addresses.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CidrError {
    /// No address before the `/`.
    #[error(
        "{found:?} is no block of addresses; write an IPv4 or IPv6 address, alone or followed by `/` and the \
         length of a prefix, such as `10.0.0.0/8` or `2001:db8::/32`"
    )]
    NotAnAddress {
        /// The text.
        found: String,
    },
    /// An address with a zone.
    #[error(
        "{found:?} has a zone, which means something on one machine only; leave out `%` and what follows"
    )]
    Zone {
        /// The text.
        found: String,
    },
    /// No such length.
    #[error("{found:?}: the prefix of an {family} address has a length from 0 to {max}")]
    PrefixLength {
        /// The text.
        found: String,
        /// IPv4 or IPv6.
        family: &'static str,
        /// The longest prefix.
        max: u8,
    },
    /// The address does not begin a block of this length.
    #[error("{found:?} has bits set beyond its prefix; the block with that address is `{block}`")]
    BitsBeyondPrefix {
        /// The text.
        found: String,
        /// The block of this length that the address is in.
        block: Cidr,
    },
}

/// A prefix longer than the address.
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

/// Text longer than this is cut in errors.
const SHOWN_MAX: usize = 80;

impl Cidr {
    /// Whether the address is in the block. An IPv4-mapped IPv6 address is in the blocks of its IPv4 address, and
    /// in no IPv6 block.
    pub fn contains(&self, address: IpAddr) -> bool {
        cut(address.to_canonical(), self.prefix) == self.first
    }

    /// The address with which the block begins.
    pub const fn first(&self) -> IpAddr {
        self.first
    }

    /// The length of the prefix, in bits.
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
        let block = Cidr { first: cut(address, prefix), prefix };
        if block.first == address {
            Ok(block)
        } else {
            Err(CidrError::BitsBeyondPrefix { found: found(), block })
        }
    }
}

impl Prefixes {
    /// So many bits of an IPv4 address, at most 32, and of an IPv6 address, at most 128.
    pub const fn new(v4: u8, v6: u8) -> Result<Prefixes, PrefixTooLong> {
        if v4 > V4_BITS {
            return Err(PrefixTooLong { family: "IPv4", found: v4, max: V4_BITS });
        }
        if v6 > V6_BITS {
            return Err(PrefixTooLong { family: "IPv6", found: v6, max: V6_BITS });
        }
        Ok(Prefixes { v4, v6 })
    }

    /// The block that this address is in. An IPv4-mapped IPv6 address becomes IPv4 before it is cut: an IPv6 prefix
    /// would put all of them into one block.
    pub fn block(self, address: IpAddr) -> Cidr {
        let address = address.to_canonical();
        let prefix = if address.is_ipv4() { self.v4 } else { self.v6 };
        Cidr { first: cut(address, prefix), prefix }
    }
}

/// A whole IPv4 address; the first 64 bits of an IPv6 address, as the rest is the customer's to choose.
impl Default for Prefixes {
    fn default() -> Prefixes {
        Prefixes { v4: V4_BITS, v6: 64 }
    }
}

/// The address with all bits beyond the prefix cleared.
fn cut(address: IpAddr, prefix: u8) -> IpAddr {
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

/// A number as it is printed: no sign, no leading zero.
fn decimal(text: &str) -> Option<u8> {
    let plain = text == "0" || !text.starts_with(['0', '+']);
    text.parse().ok().filter(|_| plain)
}
