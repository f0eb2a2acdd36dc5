//! Lints about failure policies that do not work yet.

use tollgate_core::OnFailure;

use super::Findings;
use super::context::Context;

pub(super) fn unsupported(context: &Context<'_>, found: &mut Findings<'_>) {
    for written in context.live() {
        let policy = &written.rule.on_failure;
        let mut policies =
            std::iter::once(&policy.default).chain(policy.by.iter().flat_map(|(_, by)| by.values()));
        let name = policies.find_map(|policy| match policy {
            OnFailure::Local { .. } => Some("local"),
            OnFailure::Cap { .. } => Some("cap"),
            OnFailure::Open | OnFailure::Closed | OnFailure::Degraded => None,
        });
        if let Some(name) = name {
            let message = format!(
                "the failure policy `{name}` of rule `{}` does not work yet: while the store does not answer, requests are \
                 refused, as with `closed`",
                written.id(),
            );
            let fix = "write `closed`, `open` or `degraded`";
            found.push(found.warning(written.span_of("on_failure"), message, fix));
        }
    }
}
