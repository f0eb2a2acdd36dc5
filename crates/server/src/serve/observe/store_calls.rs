//! Latency and errors of store calls.

use std::error::Error;
use std::time::Duration;

use tollgate::core::StoreError;

use super::exposition::{Exposition, Kind};
use super::histogram::Histogram;
use super::history::LatencyCounts;
use super::log::LogThrottle;

/// The results of a call.
const OUTCOMES: [&str; 5] = ["ok", "transient", "misconfigured", "corrupt", "id_reused"];

/// Counts calls by result, and logs failed ones.
#[derive(Default)]
pub(crate) struct StoreCalls {
    by_outcome: [Histogram; OUTCOMES.len()],
    pub(super) latencies: LatencyCounts,
    failures: LogThrottle,
}

impl StoreCalls {
    pub(crate) fn note(&self, took: Duration, error: Option<&StoreError>) {
        let outcome = match error {
            None => 0,
            Some(StoreError::Transient(_)) => 1,
            Some(StoreError::Misconfigured(_)) => 2,
            Some(StoreError::Corrupt { .. }) => 3,
            Some(StoreError::IdReused) => 4,
        };
        self.by_outcome[outcome].note(took);
        self.latencies.note(took);
        // The caller gets the error of a reused id.
        if let Some(error) = error.filter(|error| !matches!(error, StoreError::IdReused))
            && let Some(suppressed) = self.failures.pass(1)
        {
            let cause = error.source().map(ToString::to_string);
            tracing::warn!(
                event = "store_failed",
                kind = OUTCOMES[outcome],
                cause,
                took_us = took.as_micros() as u64,
                suppressed,
                "{error}; failure policies answer"
            );
        }
    }

    pub(crate) fn write(&self, page: &mut Exposition) {
        let mut family = page.family(
            "rate_limit_store_latency_seconds",
            Kind::Histogram,
            "How long the store took, by result.",
        );
        for (outcome, histogram) in OUTCOMES.iter().zip(&self.by_outcome) {
            histogram.write(&mut family, &[("script", "plan"), ("outcome", outcome)]);
        }
        let mut family = page.family(
            "rate_limit_script_errors_total",
            Kind::Counter,
            "Store calls that failed, by kind of error.",
        );
        for (outcome, histogram) in OUTCOMES.iter().zip(&self.by_outcome).skip(1) {
            family.sample(&[("kind", outcome)], histogram.count());
        }
    }
}
