//! The metrics of the ledger.

use tollgate::ledger::FollowStatus;
use tollgate_database::WriterStatus;

use crate::serve::observe::{Exposition, Kind};

/// Writes what was journaled and posted, and what keeps the gate equal to the ledger.
pub(super) fn write(page: &mut Exposition, journal: &WriterStatus, follow: &FollowStatus) {
    write_journal(page, journal);
    write_follow(page, follow);
}

fn write_follow(page: &mut Exposition, status: &FollowStatus) {
    let FollowStatus { restores, waiting, queries, compared, adjusted_up, adjusted_down, extras } = *status;
    let counters = [
        (
            "rate_limit_ledger_restores_total",
            "Accounts that the store had lost and got from the ledger.",
            restores,
        ),
        ("rate_limit_ledger_queries_total", "Queries for accounts that the store had lost.", queries),
        ("rate_limit_ledger_compared_total", "Comparisons of the store with the ledger.", compared),
        (
            "rate_limit_ledger_adjusted_up_units_total",
            "Units that the store had counted too little.",
            adjusted_up,
        ),
        (
            "rate_limit_ledger_adjusted_down_units_total",
            "Units that the store had counted too much.",
            adjusted_down,
        ),
        ("rate_limit_ledger_extras_total", "Corrections and grants that the store took over.", extras),
    ];
    for (name, help, value) in counters {
        page.single(name, Kind::Counter, help, value);
    }
    let help = "Accounts that checks wait for.";
    page.single("rate_limit_ledger_restores_waiting", Kind::Gauge, help, waiting);
}

fn write_journal(page: &mut Exposition, status: &WriterStatus) {
    let WriterStatus { entries, unposted, unposted_bytes, silent_for, failures, unrecorded, .. } = *status;
    let WriterStatus { lag, journal_bytes, late, voids, .. } = *status;
    let counters = [
        (
            "rate_limit_ledger_entries_total",
            "Events that were appended to the journal of the ledger.",
            entries,
        ),
        (
            "rate_limit_ledger_failures_total",
            "Failed attempts to post the journal to the database.",
            failures,
        ),
        (
            "rate_limit_ledger_unrecorded_total",
            "Events of recorded rules that the ledger did not get: the journal failed, or the answer was not awaited.",
            unrecorded,
        ),
        ("rate_limit_ledger_late_total", "Settlements after the end of their reservation.", late),
        (
            "rate_limit_ledger_voids_total",
            "Charges that were undone because their commit came too late for their answer.",
            voids,
        ),
    ];
    for (name, help, value) in counters {
        page.single(name, Kind::Counter, help, value);
    }
    let gauges = [
        (
            "rate_limit_ledger_unposted",
            "Events in the journal that the database does not have yet.",
            unposted,
        ),
        ("rate_limit_ledger_unposted_bytes", "Size of these events, about.", unposted_bytes),
        (
            "rate_limit_ledger_lag_seconds",
            "Whole seconds that the oldest of these events has waited, at most.",
            lag.as_secs(),
        ),
        (
            "rate_limit_ledger_journal_bytes",
            "Size of the journal on the disk, with what is kept after it was posted.",
            journal_bytes,
        ),
        (
            "rate_limit_ledger_silent_seconds",
            "Whole seconds since the database of the ledger last confirmed a commit or heartbeat.",
            silent_for.as_secs(),
        ),
    ];
    for (name, help, value) in gauges {
        page.single(name, Kind::Gauge, help, value);
    }
}
