//! The attributes of a request: names and values, such as tenant, user, api_key, ip, method and path.

use core::net::IpAddr;
use std::fmt;

use crate::request::path::PATH;
use crate::request::short_bytes;

/// Number of attributes that are stored inline. Most requests have no more.
const INLINE: usize = 8;

/// Names and values of one request. Any name is valid.
///
/// In practice a request has at most a dozen attributes, so lookup is a linear search.
#[derive(Clone, Default)]
pub struct Attributes<'a> {
    /// The first attributes. Not a `SmallVec`, which would be invariant in the lifetime.
    inline: [(&'a str, &'a str); INLINE],
    /// Number of inline attributes.
    len: usize,
    /// The remaining attributes.
    more: Vec<(&'a str, &'a str)>,
    /// Other readings of `path`.
    path_readings: &'a [String],
    /// The client's address, of which `ip` may be a block.
    client_address: Option<IpAddr>,
}

impl<'a> Attributes<'a> {
    /// Creates an empty set of attributes.
    pub fn new() -> Attributes<'a> {
        Attributes::default()
    }

    /// Returns these attributes with `name` set to `value`, replacing any earlier value.
    #[must_use]
    pub fn with(mut self, name: &'a str, value: &'a str) -> Attributes<'a> {
        self.set(name, value);
        self
    }

    /// Sets `name` to `value`, replacing any earlier value.
    pub fn set(&mut self, name: &'a str, value: &'a str) {
        if let Some((_, old)) = self.inline[..self.len].iter_mut().find(|(known, _)| *known == name) {
            *old = value;
        } else if let Some(free) = self.inline.get_mut(self.len) {
            *free = (name, value);
            self.len += 1;
        } else {
            match self.more.iter_mut().find(|(known, _)| *known == name) {
                Some((_, old)) => *old = value,
                None => self.more.push((name, value)),
            }
        }
    }

    /// Returns the value of `name`, or `None` if it was not set.
    #[inline]
    pub fn get(&self, name: &str) -> Option<&'a str> {
        // Not one iterator over both parts: `more` is usually empty and must then cost nothing.
        let find_in = |entries: &[(&'a str, &'a str)]| {
            let named = |(known, _): &&(&str, _)| short_bytes::equal(known.as_bytes(), name.as_bytes());
            entries.iter().find(named).map(|&(_, value)| value)
        };
        let found = find_in(&self.inline[..self.len]);
        if self.more.is_empty() { found } else { found.or_else(|| find_in(&self.more)) }
    }

    /// Sets the client's whole address. Conditions on `ip` test it, while the attribute `ip` is the block that is counted.
    pub fn set_client_address(&mut self, address: IpAddr) {
        self.client_address = Some(address);
    }

    /// Returns the client's whole address, if it was set.
    pub const fn client_address(&self) -> Option<IpAddr> {
        self.client_address
    }

    /// Sets `path` to one reading of a target, and keeps its other readings (see [`path`](crate::request::path)).
    pub fn set_path_readings(&mut self, path: &'a str, others: &'a [String]) {
        self.set(PATH, path);
        self.path_readings = others;
    }

    /// Returns the other readings of `path`. Almost always it is empty.
    #[inline]
    pub const fn path_readings(&self) -> &'a [String] {
        self.path_readings
    }

    /// Returns the attributes once for each reading of `path`.
    pub(crate) fn each_reading(&self) -> impl Iterator<Item = Attributes<'a>> + '_ {
        let others = self.path_readings.iter().map(|reading| {
            let mut attributes = self.clone();
            attributes.set_path_readings(reading, &[]);
            attributes
        });
        std::iter::once(Attributes { path_readings: &[], ..self.clone() }).chain(others)
    }

    /// Returns all attributes, in the order in which they were first set.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, &'a str)> + '_ {
        self.inline[..self.len].iter().chain(&self.more).copied()
    }
}

/// Prints names only, because values can be secrets or personal data.
impl fmt::Debug for Attributes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(|(name, _)| name)).finish()
    }
}

impl<'a> FromIterator<(&'a str, &'a str)> for Attributes<'a> {
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a str)>>(entries: I) -> Attributes<'a> {
        let mut attributes = Attributes::new();
        entries.into_iter().for_each(|(name, value)| attributes.set(name, value));
        attributes
    }
}

impl<'a, const N: usize> From<[(&'a str, &'a str); N]> for Attributes<'a> {
    // Inlined because the names are mostly literals, which the compiler can then compare at the call site.
    #[inline]
    fn from(entries: [(&'a str, &'a str); N]) -> Attributes<'a> {
        let is_duplicate = |at: usize| entries[..at].iter().any(|(name, _)| *name == entries[at].0);
        if N > INLINE || (1..N).any(is_duplicate) {
            return entries.into_iter().collect();
        }
        let mut inline = [("", ""); INLINE];
        inline[..N].copy_from_slice(&entries);
        Attributes { inline, len: N, more: Vec::new(), path_readings: &[], client_address: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_beyond_the_inline_capacity_are_kept_in_order() {
        let names: Vec<String> = (0..3 * INLINE).map(|n| n.to_string()).collect();
        let mut attributes: Attributes<'_> = names.iter().map(|name| (name.as_str(), "old")).collect();
        names.iter().for_each(|name| attributes.set(name, name));
        let found: Vec<_> = attributes.iter().collect();
        assert_eq!(found, names.iter().map(|name| (name.as_str(), name.as_str())).collect::<Vec<_>>());
        assert!(names.iter().all(|name| attributes.get(name) == Some(name)));
    }

    #[test]
    fn an_array_gives_the_same_attributes_as_an_iterator() {
        let twice = [("user", "jane"), ("ip", "::1"), ("user", "john")];
        let attributes = Attributes::from(twice);
        assert_eq!(attributes.iter().collect::<Vec<_>>(), [("user", "john"), ("ip", "::1")]);
        let names: [String; INLINE + 1] = std::array::from_fn(|n| n.to_string());
        let many: [(&str, &str); INLINE + 1] = std::array::from_fn(|n| (names[n].as_str(), "value"));
        assert_eq!(Attributes::from(many).iter().collect::<Vec<_>>(), many);
    }

    #[test]
    fn debug_prints_no_values() {
        let attributes = Attributes::new().with("user", "jane").with("user", "john").with("ip", "::1");
        assert_eq!(format!("{attributes:?}"), r#"{"user", "ip"}"#);
        assert_eq!((attributes.get("user"), attributes.get("tenant")), (Some("john"), None));
    }
}
