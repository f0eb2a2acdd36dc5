//! Checks of the rules.

use tollgate::rules::lint::LintOptions;
use tollgate::rules::load_and_lint;
use tollgate::{Clock, SystemClock};
use tollgate_document::{Problems, Severity};

use super::{Finding, Patient, Wanted};

pub(super) fn examine(patient: &Patient<'_>, wanted: &Wanted, findings: &mut Vec<Finding>) {
    if wanted.has("rules-lint") {
        findings.push(lint(patient));
    }
    if wanted.has("rules-ledger") {
        findings.push(ledger(patient));
    }
}

fn lint(patient: &Patient<'_>) -> Finding {
    const CHECK: &str = "rules-lint";
    let cluster = patient.store.as_ref().is_some_and(|store| store.is_cluster());
    let options = LintOptions { cluster, ..LintOptions::new(SystemClock.now()) };
    let mut problems = Problems::new();
    load_and_lint(patient.source, &options, &mut problems);
    let listed = problems.in_order();
    let warnings: Vec<_> = listed.iter().filter(|problem| problem.severity != Severity::Note).collect();
    let rules = patient.rules.rules().len();
    match warnings.first() {
        None => Finding::pass(CHECK, format!("{rules} rules without warnings")),
        Some(first) => Finding::warn(
            CHECK,
            format!("{} warnings about {rules} rules, such as: {}", warnings.len(), first.message),
            "`tollgate lint` shows all of them with their lines",
        ),
    }
}

fn ledger(patient: &Patient<'_>) -> Finding {
    const CHECK: &str = "rules-ledger";
    let recorded = patient.rules.rules().iter().filter(|rule| rule.ledger.is_some()).count();
    match (recorded, patient.database) {
        (0, _) => Finding::pass(CHECK, "no rule is recorded in a ledger"),
        (_, Some(_)) => Finding::pass(CHECK, format!("{recorded} rules are recorded in the ledger")),
        (_, None) => Finding::fail(
            CHECK,
            format!("{recorded} rules are recorded, and there is no database"),
            "set `database` for the ledger, or remove `ledger: true` from the rules",
        ),
    }
}
