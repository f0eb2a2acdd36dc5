//! The parts of the pages in `docs/concepts` that are made from code: figures that were measured, and what a state
//! weighs.

mod algorithms;
mod measured;
mod numbers;
mod weights;

use crate::generate::Section;
use crate::measure::Measurements;
use numbers::count;
use tollgate_core::LimitError;
use weights::Weights;

/// Every generated section: the page it stands in, and the section.
pub(crate) fn sections(measurements: &Measurements) -> Result<Vec<(&'static str, Section)>, LimitError> {
    let weights = Weights::take()?;
    let lines = algorithms::lines(&weights)?;
    let section = |page, name, text: String| (page, Section { name, text });
    let memory = |page, text: String| section(page, "memory", text);
    let flat = |bytes: usize| format!("The state of one subject is {bytes} bytes, always.");
    Ok(vec![
        section("README.md", "comparison", algorithms::comparison(&lines)),
        section("README.md", "operations", algorithms::operations(&lines)),
        memory("fixed-window.md", flat(weights.fixed_window)),
        section("fixed-window.md", "measured", measured::fixed_window(measurements)),
        memory("sliding-window.md", buckets_table(&weights)),
        section("sliding-window.md", "measured", measured::sliding_window(measurements)),
        section("sliding-window.md", "trace", measured::trace(measurements)),
        memory(
            "sliding-log.md",
            format!(
                "The state of one subject is {} bytes and {} more for every instant at which something was admitted \
                 and still counts.\nA log of 100 entries is {} bytes, one of 10,000 is {}.",
                weights.log.own,
                weights.log.each,
                count(weights.log.of(100)),
                count(weights.log.of(10_000)),
            ),
        ),
        memory("token-bucket.md", flat(weights.bucket)),
        memory("leaky-bucket.md", flat(weights.bucket)),
        memory(
            "concurrency.md",
            format!(
                "The state of one subject is {} bytes and {} more for every lease.",
                weights.concurrency.own, weights.concurrency.each
            ),
        ),
        memory(
            "quota.md",
            format!(
                "The state of one subject is {} bytes and {} more for every open reservation.",
                weights.quota.own, weights.quota.each
            ),
        ),
        memory("meter.md", flat(weights.meter)),
        memory("penalty.md", flat(weights.penalty)),
    ])
}

fn buckets_table(weights: &Weights) -> String {
    let mut table = vec!["| buckets | bytes per subject |".to_owned(), "|---|---|".to_owned()];
    table.extend(weights.windows.iter().map(|(buckets, bytes)| format!("| {buckets} | {bytes} |")));
    table.join("\n")
}
