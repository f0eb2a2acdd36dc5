//! Lints about the ledger: where it has no effect.

use tollgate_core::rules::Mode;

use crate::rules::lint::Findings;
use crate::rules::lint::context::Context;

/// Reports the ledger of a rule that never refuses.
pub(in crate::rules::lint) fn of_shadow(context: &Context<'_>, found: &mut Findings<'_>) {
    for written in context.live() {
        if written.rule.ledger.is_some() && written.rule.mode == Mode::Shadow {
            let message = format!("the ledger records nothing of the shadow rule `{}`", written.id());
            let fix = "enforce the rule, or remove `ledger`";
            found.push(found.warning(written.span_of("ledger"), message, fix));
        }
    }
}
