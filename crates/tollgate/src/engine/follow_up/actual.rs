//! What a reservation really used.

/// What a reservation really used: one amount for all rules, and others for the rules that it names.
///
/// ```
/// use tollgate::Actual;
///
/// // 700 tokens in all, 650 of them under the rule that counts output only.
/// let actual = Actual::same(700).rule("output-tokens", 650);
/// # let _ = actual;
/// ```
///
/// A rule that sets the cost itself (`cost: 1`, or a table) keeps what it was charged, unless it is named: one request is
/// one request, however many tokens it used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Actual {
    same: u64,
    named: Vec<(String, u64)>,
}

impl Actual {
    /// Creates the same amount for every rule.
    pub const fn same(amount: u64) -> Actual {
        Actual { same: amount, named: Vec::new() }
    }

    /// Sets the amount of one rule. A second amount for the same rule replaces the first.
    #[must_use]
    pub fn rule(mut self, id: impl Into<String>, amount: u64) -> Actual {
        let id = id.into();
        self.named.retain(|(known, _)| *known != id);
        self.named.push((id, amount));
        self
    }

    /// The amount of a rule that was charged `charged`. A rule of `fixed_cost` keeps that unless it is named.
    pub(super) fn of(&self, rule: &str, charged: u64, fixed_cost: bool) -> u64 {
        let named = self.named.iter().find(|(id, _)| id == rule);
        named.map_or(if fixed_cost { charged } else { self.same }, |(_, amount)| *amount)
    }
}

impl From<u64> for Actual {
    fn from(amount: u64) -> Actual {
        Actual::same(amount)
    }
}
