//! One request as callers describe it: attributes, a cost, and perhaps an id.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use tollgate_core::{Attributes, Token, rules};

/// What a caller wants to do: attributes, a cost, and perhaps a request id.
///
/// Every method that takes `impl Into<Request>` accepts pairs of names and values directly: arrays, slices, vectors and
/// maps, with `&str` or `String`. Names and values are borrowed, so up to eight attributes need no allocation.
///
/// ```
/// use std::collections::HashMap;
/// use tollgate::Request;
///
/// let request = Request::from([("action", "search"), ("api_key", "k-123")]).cost(2).id("order-17");
///
/// let headers = HashMap::from([("tenant".to_owned(), "acme".to_owned())]);
/// let request = Request::from(&headers).attribute("action", "export");
/// # let _ = request;
/// ```
#[derive(Clone)]
pub struct Request<'a> {
    attributes: Held<'a>,
    cost: u64,
    states_cost: bool,
    token: Token,
    id: Option<&'a str>,
    permitted_rules: Option<&'a [String]>,
}

/// Attributes that the request holds, or that something else holds for it.
#[derive(Clone)]
#[expect(clippy::large_enum_variant, reason = "a box would allocate for every check")]
enum Held<'a> {
    Here(Attributes<'a>),
    Elsewhere(&'a Attributes<'a>),
}

impl Default for Request<'_> {
    fn default() -> Self {
        Request::new()
    }
}

impl<'a> Request<'a> {
    /// Creates a request without attributes, of cost 1.
    pub fn new() -> Request<'a> {
        Request::of(Held::Here(Attributes::new()))
    }

    #[inline]
    const fn of(attributes: Held<'a>) -> Request<'a> {
        Request {
            attributes,
            cost: 1,
            states_cost: false,
            token: Token::NONE,
            id: None,
            permitted_rules: None,
        }
    }

    /// Sets one attribute. A second value for the same name replaces the first.
    #[must_use]
    pub fn attribute(mut self, name: &'a str, value: &'a str) -> Request<'a> {
        let mut attributes = match self.attributes {
            Held::Here(attributes) => attributes,
            Held::Elsewhere(attributes) => attributes.clone(),
        };
        attributes.set(name, value);
        self.attributes = Held::Here(attributes);
        self
    }

    /// Sets the cost: how many units the request consumes, under rules that do not set a cost themselves. The default
    /// is 1. A request of cost 0 is admitted when a request of cost 1 would be, and consumes nothing.
    ///
    /// Under a postpaid rule, a cost that is set has already been spent: it is booked, not asked for. A request without one
    /// asks with cost 0.
    #[inline]
    #[must_use]
    pub fn cost(self, cost: u64) -> Request<'a> {
        Request { cost, states_cost: true, ..self }
    }

    /// Makes the check idempotent: a request with the same id gets the same answer and is charged once, for as long as
    /// the limiter remembers ids (one minute by default). Only admissions are remembered.
    ///
    /// Do not accept ids from the client that the limit applies to: a repeated id is not charged.
    #[inline]
    #[must_use]
    pub fn id(self, id: &'a str) -> Request<'a> {
        Request { id: Some(id), ..self }
    }

    /// The same request with borrowed attributes, as the engine takes it.
    #[inline]
    pub(crate) fn as_core(&self) -> rules::Request<'_> {
        let attributes = match &self.attributes {
            Held::Here(attributes) => attributes,
            Held::Elsewhere(attributes) => attributes,
        };
        rules::Request {
            attributes,
            cost: self.cost,
            states_cost: self.states_cost,
            token: self.token,
            id: self.id,
            permitted_rules: self.permitted_rules,
            seed: 0,
        }
    }
}

/// Shows the names of the attributes only: values may be secrets or personal data.
impl fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let request = self.as_core();
        f.debug_struct("Request")
            .field("attributes", request.attributes)
            .field("cost", &request.cost)
            .field("id", &request.id)
            .finish_non_exhaustive()
    }
}

impl<'a> FromIterator<(&'a str, &'a str)> for Request<'a> {
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a str)>>(attributes: I) -> Request<'a> {
        Request::of(Held::Here(attributes.into_iter().collect()))
    }
}

impl<'a, const N: usize> From<[(&'a str, &'a str); N]> for Request<'a> {
    #[inline]
    fn from(attributes: [(&'a str, &'a str); N]) -> Request<'a> {
        Request::of(Held::Here(Attributes::from(attributes)))
    }
}

/// For values that are variables: `[("api_key", &key)]`.
impl<'a, const N: usize> From<[(&'a str, &'a String); N]> for Request<'a> {
    #[inline]
    fn from(attributes: [(&'a str, &'a String); N]) -> Request<'a> {
        Request::from(attributes.map(|(name, value)| (name, value.as_str())))
    }
}

impl<'a, K: AsRef<str>, V: AsRef<str>, const N: usize> From<&'a [(K, V); N]> for Request<'a> {
    fn from(attributes: &'a [(K, V); N]) -> Request<'a> {
        Request::from(attributes.as_slice())
    }
}

impl<'a, K: AsRef<str>, V: AsRef<str>> From<&'a [(K, V)]> for Request<'a> {
    fn from(attributes: &'a [(K, V)]) -> Request<'a> {
        attributes.iter().map(|(name, value)| (name.as_ref(), value.as_ref())).collect()
    }
}

impl<'a, K: AsRef<str>, V: AsRef<str>> From<&'a Vec<(K, V)>> for Request<'a> {
    fn from(attributes: &'a Vec<(K, V)>) -> Request<'a> {
        Request::from(attributes.as_slice())
    }
}

impl<'a, K: AsRef<str>, V: AsRef<str>, S> From<&'a HashMap<K, V, S>> for Request<'a> {
    fn from(attributes: &'a HashMap<K, V, S>) -> Request<'a> {
        attributes.iter().map(|(name, value)| (name.as_ref(), value.as_ref())).collect()
    }
}

impl<'a, K: AsRef<str>, V: AsRef<str>> From<&'a BTreeMap<K, V>> for Request<'a> {
    fn from(attributes: &'a BTreeMap<K, V>) -> Request<'a> {
        attributes.iter().map(|(name, value)| (name.as_ref(), value.as_ref())).collect()
    }
}

/// Borrows the attributes, so that one request can be checked several times.
impl<'a> From<&'a Request<'_>> for Request<'a> {
    #[inline]
    fn from(request: &'a Request<'_>) -> Request<'a> {
        Request::from(request.as_core())
    }
}

#[doc(hidden)]
impl<'a> From<Attributes<'a>> for Request<'a> {
    #[inline]
    fn from(attributes: Attributes<'a>) -> Request<'a> {
        Request::of(Held::Here(attributes))
    }
}

#[doc(hidden)]
impl<'a> From<&'a Attributes<'_>> for Request<'a> {
    #[inline]
    fn from(attributes: &'a Attributes<'_>) -> Request<'a> {
        Request::of(Held::Elsewhere(attributes))
    }
}

#[doc(hidden)]
impl<'a> From<rules::Request<'a>> for Request<'a> {
    #[inline]
    fn from(request: rules::Request<'a>) -> Request<'a> {
        // Every check draws its own seed.
        let rules::Request { attributes, cost, states_cost, token, id, permitted_rules, seed: _ } = request;
        Request { attributes: Held::Elsewhere(attributes), cost, states_cost, token, id, permitted_rules }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs<'a>(request: &'a Request<'_>) -> Vec<(&'a str, &'a str)> {
        request.as_core().attributes.iter().collect()
    }

    #[test]
    fn a_request_is_made_of_arrays_slices_vectors_and_maps() {
        let expected = [("action", "search"), ("user", "u")];
        let owned: Vec<(String, String)> =
            expected.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let mixed = vec![("action", "search".to_owned()), ("user", "u".to_owned())];
        let sorted: BTreeMap<String, String> = owned.iter().cloned().collect();
        let hashed: HashMap<&str, &str> = expected.into_iter().collect();
        let (action, user) = ("search".to_owned(), "u".to_owned());
        for request in [
            Request::from([("action", &action), ("user", &user)]),
            Request::from(expected),
            Request::from(&expected),
            Request::from(expected.as_slice()),
            Request::from(owned.as_slice()),
            Request::from(&mixed),
            Request::from(&sorted),
            Request::new().attribute("action", "search").attribute("user", "u"),
        ] {
            assert_eq!(pairs(&request), expected);
        }
        let from_hashed = Request::from(&hashed);
        let mut found = pairs(&from_hashed);
        found.sort_unstable();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_borrowed_request_keeps_cost_and_id_and_can_be_extended() {
        let request = Request::from([("user", "u")]).cost(3).id("r-1");
        let again = Request::from(&request).attribute("plan", "pro").attribute("user", "v");
        assert_eq!((again.as_core().cost, again.as_core().id), (3, Some("r-1")));
        assert_eq!(pairs(&again), [("user", "v"), ("plan", "pro")]);
        assert_eq!(pairs(&request), [("user", "u")]);
    }

    #[test]
    fn debug_shows_no_attribute_value() {
        let shown = format!("{:?}", Request::from([("api_key", "k-secret")]));
        assert!(shown.contains("api_key") && !shown.contains("k-secret"), "{shown}");
    }
}
