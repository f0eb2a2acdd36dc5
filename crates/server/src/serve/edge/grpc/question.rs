//! What a message asks, out of one that may hold anything: every descriptor is one check.
//!
//! Knows no transport and no gate: the fuzz target reads it alone.

use std::borrow::Cow;
use std::net::IpAddr;

use tollgate::Attributes;
use tollgate::core::Prefixes;

use super::proto::{RateLimitDescriptor, RateLimitOverride, RateLimitRequest};

/// A message, in bytes.
pub(crate) const MESSAGE_MAX: usize = 64 * 1024;
pub(crate) const DESCRIPTORS_MAX: usize = 32;
pub(crate) const ENTRIES_MAX: usize = 16;

/// The attribute that holds the domain of the message.
const DOMAIN: &str = "domain";
/// The attribute that holds the keys of a descriptor, in their order.
const DESCRIPTOR: &str = "descriptor";
/// The attribute that holds an address, which is written in one way only.
const IP: &str = "ip";

/// Which entries are attributes under another name as well, by their keys.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Names(Vec<(String, String)>);

/// One descriptor.
#[derive(Debug)]
pub(crate) struct Question<'m> {
    domain: &'m str,
    descriptor: &'m RateLimitDescriptor,
    /// All keys, in their order.
    keys: Cow<'m, str>,
    /// The names of entries whose key has occurred before, by their place.
    numbered: Vec<(usize, String)>,
    /// Entries under other names.
    renamed: Vec<(&'m str, Cow<'m, str>)>,
    /// How many hits it is.
    pub(crate) cost: u64,
}

/// A message that cannot be asked.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum BadMessage {
    #[error("the domain is empty; it is what the rate limit filter calls `domain`")]
    NoDomain,
    #[error("there is no descriptor")]
    NoDescriptor,
    #[error("there are {0} descriptors; there may be {DESCRIPTORS_MAX}")]
    TooManyDescriptors(usize),
    #[error("descriptor {0} has no entry")]
    NoEntry(usize),
    #[error("descriptor {0} has {1} entries; it may have {ENTRIES_MAX}")]
    TooManyEntries(usize, usize),
    #[error("an entry of descriptor {0} has no key")]
    NoKey(usize),
    #[error("the limit of descriptor {0} has no unit that we know")]
    NoUnit(usize),
}

impl Names {
    pub(crate) fn new(pairs: Vec<(String, String)>) -> Names {
        Names(pairs)
    }

    fn of<'n>(&'n self, key: &str) -> impl Iterator<Item = &'n str> {
        self.0.iter().filter(move |(of, _)| of == key).map(|(_, name)| name.as_str())
    }
}

/// What a message asks, one question for each descriptor.
pub(crate) fn read<'m>(
    message: &'m RateLimitRequest,
    names: &'m Names,
    prefixes: Prefixes,
) -> Result<Vec<Question<'m>>, BadMessage> {
    let RateLimitRequest { domain, descriptors, hits_addend } = message;
    if domain.is_empty() {
        return Err(BadMessage::NoDomain);
    }
    match descriptors.len() {
        0 => return Err(BadMessage::NoDescriptor),
        1..=DESCRIPTORS_MAX => (),
        many => return Err(BadMessage::TooManyDescriptors(many)),
    }
    let question = |(at, descriptor): (usize, &'m RateLimitDescriptor)| {
        match descriptor.entries.len() {
            0 => return Err(BadMessage::NoEntry(at)),
            1..=ENTRIES_MAX => (),
            many => return Err(BadMessage::TooManyEntries(at, many)),
        }
        if descriptor.entries.iter().any(|entry| entry.key.is_empty()) {
            return Err(BadMessage::NoKey(at));
        }
        // A message that says nothing says 0, and means 1. A descriptor that says 0 wants to look and not to be counted.
        let cost = descriptor.hits_addend.unwrap_or(u64::from((*hits_addend).max(1)));
        Ok(Question::new(domain, descriptor, cost, names, prefixes))
    };
    descriptors.iter().enumerate().map(question).collect()
}

impl<'m> Question<'m> {
    fn new(
        domain: &'m str,
        descriptor: &'m RateLimitDescriptor,
        cost: u64,
        names: &'m Names,
        prefixes: Prefixes,
    ) -> Question<'m> {
        let entries = &descriptor.entries;
        let keys = match entries.as_slice() {
            [only] => Cow::Borrowed(only.key.as_str()),
            _ => Cow::Owned(entries.iter().map(|entry| entry.key.as_str()).collect::<Vec<_>>().join(",")),
        };
        let (mut numbered, mut renamed) = (Vec::new(), Vec::new());
        for (at, entry) in entries.iter().enumerate() {
            let before = entries[..at].iter().filter(|other| other.key == entry.key).count();
            if before > 0 {
                numbered.push((at, format!("{}_{}", entry.key, before + 1)));
            }
            for name in names.of(&entry.key) {
                let value = if name == IP {
                    let Ok(address) = entry.value.parse::<IpAddr>() else { continue };
                    Cow::Owned(prefixes.block(address).to_string())
                } else {
                    Cow::Borrowed(entry.value.as_str())
                };
                renamed.push((name, value));
            }
        }
        Question { domain, descriptor, keys, numbered, renamed, cost }
    }

    /// What is known of the request.
    pub(crate) fn attributes(&self) -> Attributes<'_> {
        let mut attributes = Attributes::new();
        let mut numbered = self.numbered.iter().peekable();
        for (at, entry) in self.descriptor.entries.iter().enumerate() {
            let number = numbered.next_if(|(place, _)| *place == at);
            attributes.set(number.map_or(&entry.key, |(_, name)| name), &entry.value);
        }
        for (name, value) in &self.renamed {
            // What was sent under this name counts.
            if attributes.get(name).is_none() {
                attributes.set(name, value);
            }
        }
        // Last: no entry stands in for them.
        attributes.set(DESCRIPTOR, &self.keys);
        attributes.set(DOMAIN, self.domain);
        attributes
    }

    /// The limit that it brings along.
    pub(crate) fn own_limit(&self) -> Option<&'m RateLimitOverride> {
        self.descriptor.limit.as_ref()
    }

    /// Tells who is counted under such a limit from everybody else.
    pub(crate) fn own_key(&self) -> String {
        let mut key = format!("rls:{}:{}", self.domain.len(), self.domain);
        for entry in &self.descriptor.entries {
            for part in [&entry.key, &entry.value] {
                key.push_str(&format!(":{}:{part}", part.len()));
            }
        }
        key
    }
}

#[cfg(test)]
mod tests {
    use super::super::proto::Entry;
    use super::*;

    fn message(descriptors: &[&[(&str, &str)]]) -> RateLimitRequest {
        let entry =
            |(key, value): &(&str, &str)| Entry { key: (*key).to_owned(), value: (*value).to_owned() };
        let descriptor = |entries: &&[(&str, &str)]| RateLimitDescriptor {
            entries: entries.iter().map(entry).collect(),
            limit: None,
            hits_addend: None,
        };
        RateLimitRequest {
            domain: "shop".to_owned(),
            descriptors: descriptors.iter().map(descriptor).collect(),
            hits_addend: 0,
        }
    }

    fn names() -> Names {
        Names::new(
            [("remote_address", "ip"), ("generic_key", "action")]
                .map(|(key, name)| (key.to_owned(), name.to_owned()))
                .to_vec(),
        )
    }

    #[test]
    fn entries_are_attributes_under_their_keys_and_under_the_names_that_are_set() {
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
            // No address: no `ip`, so that whoever is counted by it is not counted as nobody.
            (
                &[("remote_address", "unknown")],
                &[("remote_address", "unknown"), ("descriptor", "remote_address")],
            ),
            // The same key again has a number, and what was sent under a name beats what is only called so.
            (
                &[("generic_key", "a"), ("generic_key", "b"), ("action", "c")],
                &[
                    ("generic_key", "a"),
                    ("generic_key_2", "b"),
                    ("action", "c"),
                    ("descriptor", "generic_key,generic_key,action"),
                ],
            ),
            // No entry passes itself off for what the message says.
            (
                &[("domain", "other"), ("descriptor", "x")],
                &[("domain", "shop"), ("descriptor", "domain,descriptor")],
            ),
        ] {
            let message = message(&[entries]);
            let names = names();
            let questions = read(&message, &names, Prefixes::default()).expect("it can be asked");
            let attributes = questions[0].attributes();
            let mut found: Vec<_> = attributes.iter().collect();
            let mut expected = [expected, &[("domain", "shop")]].concat();
            found.sort_unstable();
            expected.sort_unstable();
            expected.dedup();
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn hits_are_those_of_the_descriptor_or_of_the_message_or_one() {
        for (of_message, of_descriptor, cost) in
            [(0, None, 1), (7, None, 7), (7, Some(3), 3), (7, Some(0), 0), (0, Some(u64::MAX), u64::MAX)]
        {
            let mut message = message(&[&[("a", "b")]]);
            message.hits_addend = of_message;
            message.descriptors[0].hits_addend = of_descriptor;
            let names = Names::default();
            let questions = read(&message, &names, Prefixes::default()).expect("it can be asked");
            assert_eq!(questions[0].cost, cost);
        }
    }

    #[test]
    fn what_cannot_be_asked_is_named() {
        let entry = [("a", "b")];
        let many = [("a", "b"); ENTRIES_MAX + 1];
        let mut nowhere = message(&[&entry]);
        nowhere.domain.clear();
        for (message, expected) in [
            (nowhere, BadMessage::NoDomain),
            (message(&[]), BadMessage::NoDescriptor),
            (message(&[&entry[..]; DESCRIPTORS_MAX + 1]), BadMessage::TooManyDescriptors(33)),
            (message(&[&entry, &[]]), BadMessage::NoEntry(1)),
            (message(&[&many]), BadMessage::TooManyEntries(0, 17)),
            (message(&[&entry, &[("", "b")]]), BadMessage::NoKey(1)),
        ] {
            let names = Names::default();
            assert_eq!(read(&message, &names, Prefixes::default()).err(), Some(expected));
        }
        let most = message(&[&[("a", "b"); ENTRIES_MAX][..]; DESCRIPTORS_MAX]);
        assert!(read(&most, &Names::default(), Prefixes::default()).is_ok());
    }

    #[test]
    fn different_descriptors_have_different_keys_for_limits_of_their_own() {
        let of = |entries: &[(&str, &str)]| {
            let message = message(&[entries]);
            let names = Names::default();
            read(&message, &names, Prefixes::default()).expect("it can be asked")[0].own_key()
        };
        let keys =
            [of(&[("a", "b:c")]), of(&[("a:b", "c")]), of(&[("a", "b"), ("c", "")]), of(&[("a", "b")])];
        for (at, key) in keys.iter().enumerate() {
            assert!(!keys[..at].contains(key), "{key}");
        }
        assert_eq!(of(&[("a", "b")]), keys[3]);
    }
}
