//! How far an answer may differ from the oracle's: one table for decisions, linter, docs and checker.

/// From best to worst.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Exactness {
    /// Admits and refuses as the oracle does.
    Exact,
    /// Never admits more than the oracle; may refuse earlier, by a stated amount.
    Conservative,
    /// May admit more than the oracle, at most a stated amount.
    Bounded,
}

impl Exactness {
    /// The name in decisions.
    pub const fn name(self) -> &'static str {
        match self {
            Exactness::Exact => "exact",
            Exactness::Conservative => "conservative",
            Exactness::Bounded => "bounded",
        }
    }
}
