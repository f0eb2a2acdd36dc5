//! What the edge knows of a request.

use std::fmt;

/// Names and values of one request: tenant, user, api_key, ip, method, path, action, plan, anything.
///
/// A request has a dozen of them at most in practice, so they lie in a row and are searched in order.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Attributes<'a> {
    entries: Vec<(&'a str, &'a str)>,
}

impl<'a> Attributes<'a> {
    /// No attributes.
    pub const fn new() -> Attributes<'a> {
        Attributes { entries: Vec::new() }
    }

    /// These, and `name` with `value` in place of any value it had.
    #[must_use]
    pub fn with(mut self, name: &'a str, value: &'a str) -> Attributes<'a> {
        self.set(name, value);
        self
    }

    /// Gives `name` this value in place of any it had.
    pub fn set(&mut self, name: &'a str, value: &'a str) {
        match self.entries.iter_mut().find(|(known, _)| *known == name) {
            Some((_, old)) => *old = value,
            None => self.entries.push((name, value)),
        }
    }

    /// The value of `name`. An attribute nobody set has none, not an empty one.
    pub fn get(&self, name: &str) -> Option<&'a str> {
        self.entries.iter().find(|(known, _)| *known == name).map(|&(_, value)| value)
    }

    /// All of them, in the order they were first set.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, &'a str)> + '_ {
        self.entries.iter().copied()
    }
}

/// Names only: values may be keys, addresses and people.
impl fmt::Debug for Attributes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.entries.iter().map(|(name, _)| name)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_no_value() {
        let attributes = Attributes::new().with("user", "jane").with("user", "john").with("ip", "::1");
        assert_eq!(format!("{attributes:?}"), r#"{"user", "ip"}"#);
        assert_eq!((attributes.get("user"), attributes.get("tenant")), (Some("john"), None));
    }
}
