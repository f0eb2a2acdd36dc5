//! Reads the message of `ShouldRateLimit`: every descriptor is one request.

use std::borrow::Cow;
use std::net::IpAddr;

use tollgate::core::Prefixes;

use super::message::{RateLimitDescriptor, RateLimitRequest};
use super::proto::RateLimitOverride;
use crate::config::AttributeNames;
use crate::serve::edge::error::EdgeError;
use crate::serve::edge::lossless_text::lossless_text;
use crate::serve::edge::request::{ATTRIBUTES_MAX, COST_MAX, CheckRequest, RequestError};

/// Bytes of a message.
pub(crate) const MESSAGE_BYTES_MAX: usize = 64 * 1024;
pub(crate) const DESCRIPTORS_MAX: usize = 32;

/// The attribute with the domain of the message.
const DOMAIN: &str = "domain";
/// The attribute with the keys of a descriptor, in their order.
const DESCRIPTOR: &str = "descriptor";
/// The attribute with the index of a descriptor in its message.
const DESCRIPTOR_INDEX: &str = "descriptor_index";
/// The values of that attribute.
const INDEXES: [&str; DESCRIPTORS_MAX] = [
    "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15", "16", "17", "18",
    "19", "20", "21", "22", "23", "24", "25", "26", "27", "28", "29", "30", "31",
];
/// The attribute with an address, which is always written in its normal form.
const IP: &str = "ip";

/// One descriptor of a message.
#[derive(Debug)]
pub(crate) struct DescriptorRequest<'m> {
    domain: Cow<'m, str>,
    /// Its index in the message.
    index: &'static str,
    /// Key and value of each entry.
    entries: Vec<(Cow<'m, str>, Cow<'m, str>)>,
    limit: Option<&'m RateLimitOverride>,
    /// All keys, joined in their order; `None` if there is one entry.
    keys: Option<String>,
    /// The names of entries whose key has occurred before, by their index.
    numbered: Vec<(usize, String)>,
    /// Entries under other names, by their index.
    renamed: Vec<(&'m str, usize, Option<Address>)>,
    pub(crate) hits: Hits,
}

/// What a descriptor does with its subjects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hits {
    /// Charges them. Without a cost it is 1, or 0 under a postpaid rule.
    Charge(Option<u64>),
    /// Gives them back units, as `is_negative_hits` asks.
    Credit(u64),
}

/// The address of a client, and the block that is counted.
#[derive(Debug)]
struct Address {
    whole: IpAddr,
    block: String,
}

/// Why a message is invalid.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum MessageError {
    #[error("the domain is empty; set `domain` of the rate limit filter")]
    NoDomain,
    #[error("the message has no descriptor")]
    NoDescriptor,
    #[error("the message has {0} descriptors, more than {DESCRIPTORS_MAX}")]
    TooManyDescriptors(usize),
    #[error("descriptor {0} has no entry")]
    NoEntry(usize),
    #[error("an entry of descriptor {0} has no key")]
    NoKey(usize),
    #[error("the limit of descriptor {0} has an unknown unit")]
    NoUnit(usize),
    #[error(
        "the limit of descriptor {0} has a unit_multiplier of 0, or one that makes its window longer than 366 days"
    )]
    UnitMultiplier(usize),
    #[error(transparent)]
    Request(RequestError),
}

impl From<MessageError> for EdgeError {
    fn from(error: MessageError) -> EdgeError {
        match error {
            MessageError::Request(error) => error.into(),
            // Not an error: a gateway may let requests pass when it gets one.
            error => EdgeError::uncountable(error.to_string()),
        }
    }
}

/// Reads a message: one request for each descriptor.
pub(crate) fn read<'m>(
    message: &'m RateLimitRequest,
    names: &'m AttributeNames,
    prefixes: Prefixes,
) -> Result<Vec<DescriptorRequest<'m>>, MessageError> {
    let RateLimitRequest { domain, descriptors, hits_addend } = message;
    if domain.is_empty() {
        return Err(MessageError::NoDomain);
    }
    match descriptors.len() {
        0 => return Err(MessageError::NoDescriptor),
        1..=DESCRIPTORS_MAX => (),
        count => return Err(MessageError::TooManyDescriptors(count)),
    }
    let request = |(index, descriptor): (usize, &'m RateLimitDescriptor)| {
        match descriptor.entries.len() {
            0 => return Err(MessageError::NoEntry(index)),
            1..=ATTRIBUTES_MAX => (),
            // Before the names are compared with each other.
            _ => return Err(MessageError::Request(RequestError::TooManyAttributes)),
        }
        if descriptor.entries.iter().any(|entry| entry.key.is_empty()) {
            return Err(MessageError::NoKey(index));
        }
        let hits = Hits::of(descriptor, *hits_addend);
        Ok(DescriptorRequest::new(domain, INDEXES[index], descriptor, hits, names, prefixes))
    };
    descriptors.iter().enumerate().map(request).collect()
}

impl Hits {
    /// In a message, 0 is the default and states no cost. In a descriptor, 0 is stated: it asks and charges nothing.
    fn of(descriptor: &RateLimitDescriptor, of_message: u32) -> Hits {
        let of_message = || (of_message > 0).then(|| u64::from(of_message));
        let stated = descriptor.hits_addend.or_else(of_message);
        if descriptor.is_negative_hits {
            // Nothing counts more than this, so more gives back no more.
            Hits::Credit(stated.unwrap_or(1).min(COST_MAX))
        } else {
            Hits::Charge(stated)
        }
    }

    /// The cost under a limit that the descriptor carries.
    pub(super) fn own_cost(self) -> u64 {
        match self {
            Hits::Charge(cost) => cost.unwrap_or(1),
            Hits::Credit(units) => units,
        }
    }

    pub(super) const fn is_credit(self) -> bool {
        matches!(self, Hits::Credit(_))
    }
}

impl<'m> DescriptorRequest<'m> {
    fn new(
        domain: &'m [u8],
        index: &'static str,
        descriptor: &'m RateLimitDescriptor,
        hits: Hits,
        names: &'m AttributeNames,
        prefixes: Prefixes,
    ) -> DescriptorRequest<'m> {
        let entries: Vec<_> = descriptor
            .entries
            .iter()
            .map(|entry| (lossless_text(&entry.key), lossless_text(&entry.value)))
            .collect();
        let keys = match entries.as_slice() {
            [_] => None,
            _ => Some(entries.iter().map(|(key, _)| &**key).collect::<Vec<_>>().join(",")),
        };
        let (mut numbered, mut renamed) = (Vec::new(), Vec::new());
        for (index, (key, value)) in entries.iter().enumerate() {
            let before = entries[..index].iter().filter(|(other, _)| other == key).count();
            if before > 0 {
                numbered.push((index, format!("{key}_{}", before + 1)));
            }
            for name in names.of(key) {
                let address = if name == IP {
                    let Ok(whole) = value.parse::<IpAddr>() else { continue };
                    Some(Address { whole, block: prefixes.block(whole).to_string() })
                } else {
                    None
                };
                renamed.push((name, index, address));
            }
        }
        let limit = descriptor.limit.as_ref();
        DescriptorRequest {
            domain: lossless_text(domain),
            index,
            entries,
            limit,
            keys,
            numbered,
            renamed,
            hits,
        }
    }

    /// The request of this descriptor, if it keeps the limits.
    pub(crate) fn check_request(&self) -> Result<CheckRequest<'_>, RequestError> {
        let mut request = CheckRequest::new();
        // First: no entry replaces them.
        request.add(DOMAIN, &self.domain)?;
        let only = || self.entries.first().map_or("", |(key, _)| key);
        request.add(DESCRIPTOR, self.keys.as_deref().unwrap_or_else(only))?;
        request.add(DESCRIPTOR_INDEX, self.index)?;
        let mut numbered = self.numbered.iter().peekable();
        for (index, (key, value)) in self.entries.iter().enumerate() {
            let number = numbered.next_if(|(at, _)| *at == index);
            if number.is_none() && ![DOMAIN, DESCRIPTOR, DESCRIPTOR_INDEX].contains(&&**key) {
                request.add(key, value)?;
            }
        }
        // An entry that was sent under a name precedes one that is renamed to it.
        for (index, name) in &self.numbered {
            if !request.has(name) {
                request.add(name, &self.entries[*index].1)?;
            }
        }
        for (name, index, address) in &self.renamed {
            if request.has(name) {
                continue;
            }
            match address {
                Some(Address { whole, block }) => {
                    request.add(name, block)?;
                    request.set_client_address(*whole);
                }
                None => request.add(name, &self.entries[*index].1)?,
            }
        }
        match self.hits {
            Hits::Charge(None) => (),
            Hits::Charge(Some(cost)) => request.set_cost(cost)?,
            Hits::Credit(units) => request.set_cost(units)?,
        }
        Ok(request)
    }

    /// The limit that the descriptor carries.
    pub(crate) fn own_limit(&self) -> Option<&'m RateLimitOverride> {
        self.limit
    }

    /// The key that is counted under such a limit: unique for the domain and all entries.
    pub(crate) fn own_key(&self) -> String {
        let mut key = format!("rls:{}:{}", self.domain.len(), self.domain);
        for (name, value) in &self.entries {
            for part in [name, value] {
                key.push_str(&format!(":{}:{part}", part.len()));
            }
        }
        key
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::Entry;
    use super::*;

    fn message(descriptors: &[&[(&str, &str)]]) -> RateLimitRequest {
        let bytes = |text: &str| text.as_bytes().to_vec().into();
        let entry = |(key, value): &(&str, &str)| Entry { key: bytes(key), value: bytes(value) };
        let descriptor = |entries: &&[(&str, &str)]| RateLimitDescriptor {
            entries: entries.iter().map(entry).collect(),
            limit: None,
            hits_addend: None,
            is_negative_hits: false,
        };
        RateLimitRequest {
            domain: "shop".into(),
            descriptors: descriptors.iter().map(descriptor).collect(),
            hits_addend: 0,
        }
    }

    fn names() -> AttributeNames {
        AttributeNames::new(
            [("remote_address", "ip"), ("generic_key", "action")]
                .map(|(key, name)| (key.to_owned(), name.to_owned()))
                .to_vec(),
        )
    }

    #[test]
    fn entries_become_attributes_under_their_keys_and_configured_names() {
        for (entries, expected) in [
            (
                &[("generic_key", "search")][..],
                &[("generic_key", "search"), ("action", "search"), ("descriptor", "generic_key")][..],
            ),
            (
                &[("remote_address", "::ffff:192.0.2.7"), ("path", "/a")],
                &[
                    ("remote_address", "::ffff:192.0.2.7"),
                    ("path", "/a"),
                    ("ip", "192.0.2.7"),
                    ("descriptor", "remote_address,path"),
                ],
            ),
            // An invalid address sets no `ip`.
            (
                &[("remote_address", "unknown")],
                &[("remote_address", "unknown"), ("descriptor", "remote_address")],
            ),
            // A repeated key gets a number, and an entry sent under a name precedes a renamed one.
            (
                &[("generic_key", "a"), ("generic_key", "b"), ("action", "c")],
                &[
                    ("generic_key", "a"),
                    ("generic_key_2", "b"),
                    ("action", "c"),
                    ("descriptor", "generic_key,generic_key,action"),
                ],
            ),
            // No entry replaces the attributes of the message.
            (
                &[("domain", "other"), ("descriptor", "x"), ("descriptor_index", "7")],
                &[("domain", "shop"), ("descriptor", "domain,descriptor,descriptor_index")],
            ),
        ] {
            let message = message(&[entries]);
            let names = names();
            let requests = read(&message, &names, Prefixes::default()).expect("it is valid");
            let request = requests[0].check_request().expect("it is valid");
            let mut found: Vec<_> = request.attributes().iter().collect();
            let mut expected = [expected, &[("domain", "shop"), ("descriptor_index", "0")]].concat();
            found.sort_unstable();
            expected.sort_unstable();
            expected.dedup();
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn descriptors_of_any_bytes_become_different_requests() {
        let names = AttributeNames::default();
        let mut seen = std::collections::BTreeSet::new();
        let values = [
            &b"\xff"[..],
            b"\xfe",
            b"\xff\xff",
            b"\xc3",
            "\u{10FFFF}".as_bytes(),
            "\u{FFFD}".as_bytes(),
            b"",
            b"%FF",
        ];
        for value in values {
            let mut message = message(&[&[("key", "")]]);
            message.descriptors[0].entries[0].value = value.to_vec().into();
            let requests = read(&message, &names, Prefixes::default()).expect("it is valid");
            let request = requests[0].check_request().expect("it is valid");
            assert!(seen.insert(request.attributes().get("key").map(str::to_owned)), "{value:?}");
            assert!(seen.insert(Some(requests[0].own_key())), "{value:?}");
        }
        let mut message = message(&[&[("a", "b"), ("c", "d")]]);
        message.domain = vec![0xff].into();
        message.descriptors[0].entries[1].key = vec![0xfe].into();
        let requests = read(&message, &names, Prefixes::default()).expect("it is valid");
        assert!(requests[0].check_request().is_ok());
    }

    #[test]
    fn hits_are_the_descriptors_or_the_messages_or_unstated() {
        for (of_message, of_descriptor, stated) in [
            (0, None, None),
            (7, None, Some(7)),
            (7, Some(3), Some(3)),
            (7, Some(0), Some(0)),
            (0, Some(u64::MAX), Some(u64::MAX)),
        ] {
            let mut message = message(&[&[("a", "b")]]);
            message.hits_addend = of_message;
            message.descriptors[0].hits_addend = of_descriptor;
            let names = AttributeNames::default();
            let requests = read(&message, &names, Prefixes::default()).expect("it is valid");
            assert_eq!(requests[0].hits, Hits::Charge(stated));
            message.descriptors[0].is_negative_hits = true;
            let requests = read(&message, &names, Prefixes::default()).expect("it is valid");
            assert_eq!(requests[0].hits, Hits::Credit(stated.unwrap_or(1).min(COST_MAX)));
            assert!(requests[0].check_request().is_ok(), "no credit is too large");
        }
    }

    #[test]
    fn an_invalid_message_is_rejected_with_its_fault() {
        let entry = [("a", "b")];
        let many = [("a", "b"); ATTRIBUTES_MAX + 1];
        let mut nowhere = message(&[&entry]);
        nowhere.domain.clear();
        for (message, expected) in [
            (nowhere, MessageError::NoDomain),
            (message(&[]), MessageError::NoDescriptor),
            (message(&[&entry[..]; DESCRIPTORS_MAX + 1]), MessageError::TooManyDescriptors(33)),
            (message(&[&entry, &[]]), MessageError::NoEntry(1)),
            (message(&[&many]), MessageError::Request(RequestError::TooManyAttributes)),
            (message(&[&entry, &[("", "b")]]), MessageError::NoKey(1)),
        ] {
            let names = AttributeNames::default();
            assert_eq!(read(&message, &names, Prefixes::default()).err(), Some(expected));
        }
        let most = message(&[&[("a", "b"); ATTRIBUTES_MAX][..]; DESCRIPTORS_MAX]);
        assert!(read(&most, &AttributeNames::default(), Prefixes::default()).is_ok());
    }

    #[test]
    fn different_descriptors_have_different_own_keys() {
        let of = |entries: &[(&str, &str)]| {
            let message = message(&[entries]);
            let names = AttributeNames::default();
            read(&message, &names, Prefixes::default()).expect("it is valid")[0].own_key()
        };
        let keys =
            [of(&[("a", "b:c")]), of(&[("a:b", "c")]), of(&[("a", "b"), ("c", "")]), of(&[("a", "b")])];
        for (at, key) in keys.iter().enumerate() {
            assert!(!keys[..at].contains(key), "{key}");
        }
        assert_eq!(of(&[("a", "b")]), keys[3]);
    }
}
