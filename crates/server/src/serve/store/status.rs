//! The state of the store, for metrics and readiness.

use tollgate::guard::SliceCounts;
use tollgate::store::memory::Usage;
use tollgate::store::redis::ServerStatus;

use crate::serve::observe::{Exposition, Kind};

/// The state of a store, by its kind.
pub(crate) enum StoreStatus {
    Memory(Usage),
    Redis {
        servers: Vec<ServerStatus>,
        slices: SliceCounts,
        /// Operations beyond the cap on anonymous subjects.
        overflowed: u64,
    },
}

impl StoreStatus {
    /// Why failure policies answer checks; `None` if the store works.
    pub(crate) fn down_reason(&self) -> Option<String> {
        let StoreStatus::Redis { servers, .. } = self else { return None };
        down_reason(servers)
    }

    pub(crate) fn write(&self, page: &mut Exposition) {
        match self {
            StoreStatus::Memory(usage) => {
                page.single("rate_limit_keys", Kind::Gauge, "Keys with state.", usage.keys);
                page.single(
                    "rate_limit_keys_max",
                    Kind::Gauge,
                    "The maximum number of keys.",
                    usage.keys_max,
                );
                write_overflowed(page, usage.overflowed);
            }
            StoreStatus::Redis { servers, slices, overflowed } => {
                page.single(
                    "rate_limit_store_up",
                    Kind::Gauge,
                    "0 while a server of the store counts as down, so that failure policies answer.",
                    u8::from(self.down_reason().is_none()),
                );
                // By number, because addresses change and the number of servers does not.
                let numbers: Vec<String> = (0..servers.len()).map(|number| number.to_string()).collect();
                let mut family = page.family(
                    "rate_limit_breaker_open",
                    Kind::Gauge,
                    "1 while a server of the store counts as down.",
                );
                for (server, number) in servers.iter().zip(&numbers) {
                    family.sample(&[("server", number)], u8::from(server.down.is_some()));
                }
                let mut family = page.family(
                    "rate_limit_breaker_opened_total",
                    Kind::Counter,
                    "How often a server of the store was marked as down.",
                );
                for (server, number) in servers.iter().zip(&numbers) {
                    family.sample(&[("server", number)], server.opened);
                }
                write_slices(page, slices);
                write_overflowed(page, *overflowed);
            }
        }
    }
}

/// Returns why servers of the store count as down. `None` if all are up.
pub(crate) fn down_reason(servers: &[ServerStatus]) -> Option<String> {
    let down = servers.iter().filter_map(|server| server.down.as_ref());
    let reasons: Vec<String> = down.map(ToString::to_string).collect();
    (!reasons.is_empty()).then(|| reasons.join("; "))
}

fn write_overflowed(page: &mut Exposition, overflowed: u64) {
    page.single(
        "rate_limit_overflowed_total",
        Kind::Counter,
        "Operations under an overflow subject, which counts all subjects beyond a cap.",
        overflowed,
    );
}

fn write_slices(page: &mut Exposition, slices: &SliceCounts) {
    let SliceCounts { local_checks, grants, granted_units, returned_units, lapsed_units, early_refusals } =
        *slices;
    for (name, help, value) in [
        ("rate_limit_slice_checks_total", "Checks that slices decided without the store.", local_checks),
        ("rate_limit_slice_grants_total", "Slices that were booked in the store.", grants),
        ("rate_limit_slice_granted_units_total", "Units in slices that were booked.", granted_units),
        (
            "rate_limit_slice_returned_units_total",
            "Unspent units of slices that were given back.",
            returned_units,
        ),
        ("rate_limit_slice_lapsed_units_total", "Unspent units of slices that were lost.", lapsed_units),
        (
            "rate_limit_slice_early_refusals_total",
            "Refusals that units in the slices of a server may have caused.",
            early_refusals,
        ),
    ] {
        page.single(name, Kind::Counter, help, value);
    }
}
