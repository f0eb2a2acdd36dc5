//! What a caller may do.

use std::fmt;

/// A set of scopes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Scopes(u8);

impl Scopes {
    pub(crate) const NONE: Scopes = Scopes(0);
    /// Checks, peeks, leases, reservations and usage.
    pub(crate) const CHECK: Scopes = Scopes(1);
    /// Refunds by receipt, settlements and cancellations.
    pub(crate) const REFUND: Scopes = Scopes(1 << 1);
    /// Reports of results to penalty limits.
    pub(crate) const REPORT: Scopes = Scopes(1 << 2);
    /// Charges after the fact, beyond the limit, and credits.
    pub(crate) const RECORD: Scopes = Scopes(1 << 3);
    /// Metrics only.
    pub(crate) const METRICS: Scopes = Scopes(1 << 4);
    /// Reading: metrics, rules, explanations.
    pub(crate) const READ: Scopes = Scopes(1 << 5 | Scopes::METRICS.0);
    /// Live changes: resets.
    pub(crate) const CHANGE: Scopes = Scopes(1 << 6);
    /// Administration: tokens, corrections of the ledger.
    pub(crate) const ADMIN: Scopes = Scopes(1 << 7);

    /// The scopes that concern single requests. Only these can be bound to attribute values.
    pub(crate) const CHECK_FAMILY: Scopes =
        Scopes::CHECK.and(Scopes::REFUND).and(Scopes::REPORT).and(Scopes::RECORD);
    /// The scopes that only a token with a name gives, because the log names the token at every use.
    pub(crate) const NAMED_ONLY: Scopes = Scopes::CHANGE.and(Scopes::ADMIN);

    /// All scopes with their names and meanings, and `none`.
    pub(crate) const WORDS: &[(&str, &str)] = &[
        ("check", "Checks, peeks, leases, reservations and usage."),
        ("refund", "Refunds, settlements and cancellations by receipt."),
        ("report", "Reports of results to penalty limits."),
        ("record", "Charges after the fact and credits."),
        ("metrics", "Metrics only."),
        ("read", "Reading: metrics, rules, explanations."),
        ("change", "Live changes: resets. For tokens only."),
        ("admin", "Administration. For tokens only."),
        ("none", "No scope. It cannot be combined with others."),
    ];

    const VALUES: [Scopes; 9] = [
        Scopes::CHECK,
        Scopes::REFUND,
        Scopes::REPORT,
        Scopes::RECORD,
        Scopes::METRICS,
        Scopes::READ,
        Scopes::CHANGE,
        Scopes::ADMIN,
        Scopes::NONE,
    ];

    /// The union of both.
    #[must_use]
    pub(crate) const fn and(self, other: Scopes) -> Scopes {
        Scopes(self.0 | other.0)
    }

    /// What both contain.
    #[must_use]
    pub(crate) const fn common(self, other: Scopes) -> Scopes {
        Scopes(self.0 & other.0)
    }

    /// These without the others.
    #[must_use]
    pub(crate) const fn without(self, others: Scopes) -> Scopes {
        Scopes(self.0 & !others.0)
    }

    /// Whether it is empty.
    pub(crate) const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Whether these include all of `needed`.
    pub(crate) const fn allow(self, needed: Scopes) -> bool {
        self.0 & needed.0 == needed.0
    }

    /// The scope with this name; `none` is the empty set.
    pub(crate) fn named(name: &str) -> Option<Scopes> {
        let index = Scopes::WORDS.iter().position(|(known, _)| *known == name)?;
        Scopes::VALUES.get(index).copied()
    }

    /// The names of the scopes. `read` includes `metrics`, which is then not named.
    pub(crate) fn names(self) -> impl Iterator<Item = &'static str> {
        let all = Scopes::WORDS.iter().zip(Scopes::VALUES).filter(|(_, scope)| !scope.is_none());
        let implied = move |scope: Scopes| scope == Scopes::METRICS && self.allow(Scopes::READ);
        all.filter(move |(_, scope)| self.allow(*scope) && !implied(*scope)).map(|((name, _), _)| *name)
    }
}

impl fmt::Display for Scopes {
    /// `check, read`, or `none`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.names().collect();
        f.write_str(if names.is_empty() { "none".to_owned() } else { names.join(", ") }.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_have_names_and_allow_only_what_they_include() {
        let both = Scopes::CHECK.and(Scopes::READ);
        assert_eq!(both.to_string(), "check, read");
        assert_eq!(Scopes::NONE.to_string(), "none");
        assert!(both.allow(Scopes::READ) && !both.allow(Scopes::ADMIN) && !Scopes::CHECK.allow(both));
        assert_eq!(Scopes::named("root"), None);
        for (name, _) in Scopes::WORDS {
            assert_eq!(Scopes::named(name).expect("it is a scope").to_string(), *name);
        }
    }

    #[test]
    fn each_scope_gives_itself_and_only_read_gives_another() {
        for (index, scope) in Scopes::VALUES.iter().enumerate().filter(|(_, scope)| !scope.is_none()) {
            for (other, needed) in Scopes::VALUES.iter().enumerate().filter(|(_, scope)| !scope.is_none()) {
                let expected = index == other || (*scope == Scopes::READ && *needed == Scopes::METRICS);
                assert_eq!(scope.allow(*needed), expected, "{scope} for {needed}");
            }
        }
        assert_eq!(Scopes::CHECK_FAMILY.to_string(), "check, refund, report, record");
        assert_eq!(Scopes::NAMED_ONLY.to_string(), "change, admin");
    }
}
