//! The rule set that is in force, and its replacement.

use arc_swap::ArcSwap;
use tollgate_core::rules::RuleSet;

/// A rule set, and how often other sets were in force before it.
pub(super) struct ActiveRules {
    pub(super) rules: RuleSet,
    pub(super) version: u64,
    /// Identifies the rules by their text, the same on every server that read the same text; 0 if there is no text.
    pub(super) text_hash: u64,
    /// Whether texts with a rule that a ledger must record are refused, because there is no ledger.
    pub(super) refuses_recorded: bool,
}

/// Puts `rules` in force.
pub(super) fn activate(active: &ArcSwap<ActiveRules>, rules: &RuleSet, text_hash: u64) {
    // Two replacements at the same moment get two versions: receipts carry them.
    active.rcu(|old| ActiveRules {
        rules: rules.clone(),
        version: old.version + 1,
        text_hash,
        refuses_recorded: old.refuses_recorded,
    });
}
