//! How the store does: time and errors of its calls.

use std::error::Error;
use std::time::Duration;

use tollgate::core::StoreError;

use super::exposition::{Exposition, Kind};
use super::histogram::Histogram;
use super::log::Throttle;

/// How calls end.
const ENDS: [&str; 5] = ["ok", "transient", "misconfigured", "corrupt", "id_reused"];

/// Counts calls of the store by how they ended, and tells of those that failed.
#[derive(Default)]
pub(crate) struct StoreCalls {
    by_end: [Histogram; ENDS.len()],
    told: Throttle,
}

impl StoreCalls {
    pub(crate) fn note(&self, took: Duration, error: Option<&StoreError>) {
        let end = match error {
            None => 0,
            Some(StoreError::Transient(_)) => 1,
            Some(StoreError::Misconfigured(_)) => 2,
            Some(StoreError::Corrupt { .. }) => 3,
            Some(StoreError::IdReused) => 4,
        };
        self.by_end[end].note(took);
        // An id that is used twice is the caller's mistake, and the caller is told.
        if let Some(error) = error.filter(|error| !matches!(error, StoreError::IdReused))
            && let Some(untold) = self.told.pass(1)
        {
            let cause = error.source().map(ToString::to_string);
            tracing::warn!(
                event = "store_failed",
                kind = ENDS[end],
                cause,
                took_us = took.as_micros() as u64,
                untold,
                "{error}; failure policies answer"
            );
        }
    }

    pub(crate) fn write(&self, page: &mut Exposition) {
        let mut family = page.family(
            "rate_limit_store_latency_seconds",
            Kind::Histogram,
            "How long the store took, by how the call ended.",
        );
        for (end, histogram) in ENDS.iter().zip(&self.by_end) {
            histogram.write(&mut family, &[("script", "plan"), ("outcome", end)]);
        }
        let mut family = page.family(
            "rate_limit_script_errors_total",
            Kind::Counter,
            "Calls of the store that did not end in a decision, by kind of error.",
        );
        for (end, histogram) in ENDS.iter().zip(&self.by_end).skip(1) {
            family.sample(&[("kind", end)], histogram.count());
        }
    }
}
