//! Lints about `unmatched: refuse`.

use tollgate_core::rules::{Missing, Unmatched};

use crate::rules::lint::Findings;
use crate::rules::lint::context::Context;

pub(in crate::rules::lint) fn refuse(context: &Context<'_>, found: &mut Findings<'_>) {
    if context.set.unmatched() == Unmatched::Allow {
        return;
    }
    let span = context.root.get("unmatched").map_or(context.root.span, |node| node.span);
    if context.live().next().is_none() {
        let message = "no rule is in force, so `unmatched: refuse` refuses every request".to_owned();
        let fix = "add a rule, or switch one on; requests on the `bypass` list are still allowed";
        found.push(found.warning(span, message, fix));
        return;
    }
    let counts_all = |rule: &tollgate_core::rules::Rule| {
        rule.conditions.is_empty() && (rule.per.parts.is_empty() || rule.missing == Missing::Refuse)
    };
    if let Some(all) = context.live().find(|written| counts_all(written.rule)) {
        let message = format!("`unmatched: refuse` has no effect: rule `{}` matches every request", all.id());
        let fix = "remove it, or add a `match` to the rule";
        found.push(found.note(span, message, fix).also(all.span(), "this rule has no conditions"));
    }
}
