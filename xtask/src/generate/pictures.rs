//! The pictures of `docs/concepts`, drawn by running scripts on the real state machines.

mod algorithms;
mod chart;
mod measured;
mod retry;
mod script;
mod store_away;

use crate::generate::measure::Measurements;
use crate::generate::outage::Run;
use algorithms::{
    concurrency, fixed_window, leaky_bucket, meter, penalty, quota, sliding_log, sliding_window, token_bucket,
};
use anyhow::Result;

/// Returns the picture of the failure policies.
pub(crate) fn store_away(runs: &[Run]) -> String {
    store_away::chart(runs).svg()
}

/// Returns every picture as file name and SVG text.
pub(crate) fn all(measurements: &Measurements) -> Result<Vec<(&'static str, String)>> {
    let charts = [
        ("fixed-window.svg", fixed_window::chart()?),
        ("fixed-window-burst.svg", measured::fixed_window_burst(measurements)),
        ("sliding-window.svg", sliding_window::chart()?),
        ("sliding-window-error.svg", measured::sliding_window_error(measurements)),
        ("sliding-log.svg", sliding_log::chart()?),
        ("token-bucket.svg", token_bucket::chart()?),
        ("leaky-meter.svg", leaky_bucket::meter()?),
        ("leaky-shaper.svg", leaky_bucket::shaper()?),
        ("concurrency.svg", concurrency::chart()?),
        ("quota.svg", quota::chart()?),
        ("meter.svg", meter::chart()?),
        ("penalty.svg", penalty::chart()?),
        ("retry.svg", retry::chart()?),
    ];
    Ok(charts.into_iter().map(|(name, chart)| (name, chart.svg())).collect())
}
