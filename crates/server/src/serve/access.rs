//! Who may do what: scopes, and the tokens that give them.

/// What a caller may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Scopes(u8);

impl Scopes {
    pub(crate) const NONE: Scopes = Scopes(0);
    /// Ask for admission, and everything that follows from it: refund, leases, reports.
    pub(crate) const CHECK: Scopes = Scopes(1);
    /// Look: rules, metrics, explanations.
    pub(crate) const READ: Scopes = Scopes(2);
    /// Change what is counted.
    pub(crate) const ADMIN: Scopes = Scopes(4);

    /// Both together.
    #[must_use]
    pub(crate) const fn and(self, other: Scopes) -> Scopes {
        Scopes(self.0 | other.0)
    }

    /// Whether there are none.
    pub(crate) const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Whether all of `needed` is among these.
    pub(crate) const fn allow(self, needed: Scopes) -> bool {
        self.0 & needed.0 == needed.0
    }
}

/// The tokens that are known, as digests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Access {}

impl Access {
    /// Whether no token is known.
    pub(crate) fn is_empty(&self) -> bool {
        true
    }

    /// What the bearer of this token may do; `None` if nobody knows it.
    pub(crate) fn scopes_of(&self, _token: &[u8]) -> Option<Scopes> {
        None
    }
}
