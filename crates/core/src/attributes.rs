//! What the edge knows of a request.

use std::fmt;

use crate::short_bytes;

/// As many as most requests have: they stay on the stack.
const INLINE: usize = 8;

/// Names and values of one request: tenant, user, api_key, ip, method, path, action, plan, anything.
///
/// A request has a dozen of them at most in practice, so they lie in a row and are searched in order.
#[derive(Clone, Default)]
pub struct Attributes<'a> {
    /// The first ones. Not a SmallVec: that would tie all attributes to exactly one lifetime.
    inline: [(&'a str, &'a str); INLINE],
    /// How many of them there are.
    len: usize,
    /// The others.
    more: Vec<(&'a str, &'a str)>,
}

impl<'a> Attributes<'a> {
    /// No attributes.
    pub fn new() -> Attributes<'a> {
        Attributes::default()
    }

    /// These, and `name` with `value` in place of any value it had.
    #[must_use]
    pub fn with(mut self, name: &'a str, value: &'a str) -> Attributes<'a> {
        self.set(name, value);
        self
    }

    /// Gives `name` this value in place of any it had.
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

    /// The value of `name`. An attribute nobody set has none, not an empty one.
    #[inline]
    pub fn get(&self, name: &str) -> Option<&'a str> {
        // Not by one iterator over both: as a rule there are no others, and it must not cost anything that there might be.
        let among = |entries: &[(&'a str, &'a str)]| {
            let named = |(known, _): &&(&str, _)| short_bytes::same(known.as_bytes(), name.as_bytes());
            entries.iter().find(named).map(|&(_, value)| value)
        };
        let found = among(&self.inline[..self.len]);
        if self.more.is_empty() { found } else { found.or_else(|| among(&self.more)) }
    }

    /// All of them, in the order they were first set.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, &'a str)> + '_ {
        self.inline[..self.len].iter().chain(&self.more).copied()
    }
}

/// Names only: values may be keys, addresses and people.
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
    // Names in an array are mostly literals: seen from where it is called, the compiler compares them.
    #[inline]
    fn from(entries: [(&'a str, &'a str); N]) -> Attributes<'a> {
        let is_second = |at: usize| entries[..at].iter().any(|(name, _)| *name == entries[at].0);
        if N > INLINE || (1..N).any(is_second) {
            return entries.into_iter().collect();
        }
        let mut inline = [("", ""); INLINE];
        inline[..N].copy_from_slice(&entries);
        Attributes { inline, len: N, more: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_attributes_than_usual_are_all_there_and_in_order() {
        let names: Vec<String> = (0..3 * INLINE).map(|n| n.to_string()).collect();
        let mut attributes: Attributes<'_> = names.iter().map(|name| (name.as_str(), "old")).collect();
        names.iter().for_each(|name| attributes.set(name, name));
        let found: Vec<_> = attributes.iter().collect();
        assert_eq!(found, names.iter().map(|name| (name.as_str(), name.as_str())).collect::<Vec<_>>());
        assert!(names.iter().all(|name| attributes.get(name) == Some(name)));
    }

    #[test]
    fn an_array_is_taken_like_any_other_entries() {
        let twice = [("user", "jane"), ("ip", "::1"), ("user", "john")];
        let attributes = Attributes::from(twice);
        assert_eq!(attributes.iter().collect::<Vec<_>>(), [("user", "john"), ("ip", "::1")]);
        let names: [String; INLINE + 1] = std::array::from_fn(|n| n.to_string());
        let many: [(&str, &str); INLINE + 1] = std::array::from_fn(|n| (names[n].as_str(), "value"));
        assert_eq!(Attributes::from(many).iter().collect::<Vec<_>>(), many);
    }

    #[test]
    fn debug_shows_no_value() {
        let attributes = Attributes::new().with("user", "jane").with("user", "john").with("ip", "::1");
        assert_eq!(format!("{attributes:?}"), r#"{"user", "ip"}"#);
        assert_eq!((attributes.get("user"), attributes.get("tenant")), (Some("john"), None));
    }
}
