//! Exactness classes: how much an answer may differ from the oracle's. Decisions, linter and docs share this table.

/// What a decision guarantees, ordered from best to worst.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Exactness {
    /// Admits and refuses as the oracle does.
    Exact,
    /// Never admits more than the oracle. May refuse earlier, by a stated amount.
    Conservative,
    /// May admit more than the oracle, by at most a stated amount.
    Bounded,
    /// Says nothing about the limit: a failure policy admits everything.
    Unbounded,
}

impl Exactness {
    /// Returns its name in decisions.
    pub const fn name(self) -> &'static str {
        match self {
            Exactness::Exact => "exact",
            Exactness::Conservative => "conservative",
            Exactness::Bounded => "bounded",
            Exactness::Unbounded => "unbounded",
        }
    }
}
