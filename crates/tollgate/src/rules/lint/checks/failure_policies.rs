//! Lints about failure policies that a rule's limit cannot have.

use tollgate_core::{Algorithm, OnFailure};

use crate::rules::lint::Findings;
use crate::rules::lint::context::Context;

/// `local` needs a limit that can be divided.
pub(in crate::rules::lint) fn indivisible(context: &Context<'_>, found: &mut Findings<'_>) {
    for written in context.live() {
        let policy = &written.rule.on_failure;
        let mut policies =
            std::iter::once(&policy.default).chain(policy.by.iter().flat_map(|(_, by)| by.values()));
        let has_local = policies.any(|policy| matches!(policy, OnFailure::Local { .. }));
        let what = match written.rule.limit.algorithm() {
            Some(Algorithm::Concurrency) => "leases are held in the store",
            Some(Algorithm::LeakyShaper) => "a queue has one order for all servers",
            Some(Algorithm::Penalty) => "failures are counted in the store",
            _ => continue,
        };
        if has_local {
            let message = format!(
                "the failure policy `local` of rule `{}` cannot work: {what}, and a share of it means nothing; while the store \
                 does not answer, requests would be refused",
                written.id(),
            );
            let fix = "write `closed`, `open`, `degraded` or `cap N/period`";
            found.push(found.warning(written.span_of("on_failure"), message, fix));
        }
    }
}
