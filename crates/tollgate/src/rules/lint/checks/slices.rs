//! Lints about slices: what they promise, and where they have no effect.

use tollgate_core::Limit;
use tollgate_core::rules::{Mode, RuleLimit};

use crate::rules::lint::Findings;
use crate::rules::lint::context::Context;

/// States class and bound of a rule with slices.
pub(in crate::rules::lint) fn early_refusals(context: &Context<'_>, found: &mut Findings<'_>) {
    for written in context.live() {
        let Some(hold) = written.rule.slices else { continue };
        let hold = hold.span();
        let margin = match &written.rule.limit {
            RuleLimit::Fixed(limit @ Limit::Bucket(_)) => {
                format!("; its bucket runs at a capacity of {}", limit.capacity())
            }
            _ => String::new(),
        };
        let message = format!(
            "rule `{}` is conservative: it never admits more than its limit, and units that one server has booked are \
             refused to the others for up to {hold}{margin}",
            written.id(),
        );
        let fix =
            "slices pay for keys with hundreds of checks per second and server; remove them from other rules";
        found.push(found.note(written.span_of("slices"), message, fix));
    }
}

/// Reports slices of a rule that never refuses.
pub(in crate::rules::lint) fn of_shadow(context: &Context<'_>, found: &mut Findings<'_>) {
    for written in context.live() {
        if written.rule.slices.is_some() && written.rule.mode == Mode::Shadow {
            let message = format!(
                "the slices of rule `{}` have no effect: a shadow rule asks the store each time",
                written.id()
            );
            let fix = "enforce the rule, or remove `slices`";
            found.push(found.warning(written.span_of("slices"), message, fix));
        }
    }
}
