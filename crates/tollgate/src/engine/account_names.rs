//! Names of accounts: what a rule's `ledger: { name: ATTRIBUTE }` reads from a request.

use std::sync::Arc;

use tollgate_core::rules::{Request, RuleSet};
use tollgate_core::{Item, Key, Plan};

use super::Inner;

/// Receives the key of an account and its name. It must not block.
pub type AccountNames = Arc<dyn Fn(&Key<'_>, &str) + Send + Sync>;

impl<S> Inner<S> {
    /// Notes the names of the accounts that a Plan charges.
    #[inline]
    pub(super) fn note_names(&self, rules: &RuleSet, request: &Request<'_>, plan: &Plan<'_>) {
        if rules.has_names()
            && let Some(names) = &self.account_names
        {
            plan.items().iter().for_each(|item| note_name(names, rules, request, item));
        }
    }
}

#[cold]
fn note_name(names: &AccountNames, rules: &RuleSet, request: &Request<'_>, item: &Item<'_>) {
    // Shadow rules and the second key of a rotation are not in the ledger.
    let rule = item.ledger.and_then(|_| rules.rules().get(item.rule_index as usize));
    let attribute = rule.and_then(|rule| rule.ledger_name.as_deref());
    if let Some(name) = attribute.and_then(|attribute| request.attributes.get(attribute)) {
        names(&item.key, name);
    }
}
