//! The generated sections of the pages in `docs/concepts`: comparison tables, measured figures and state sizes.

mod algorithms;
mod measured;
mod numbers;
mod state_sizes;

use crate::generate::Section;
use crate::generate::measure::Measurements;
use numbers::count;
use state_sizes::{HoldSize, RecordSize, StateSizes};
use tollgate_core::LimitError;

/// Returns every generated section with the page that contains it.
pub(crate) fn sections(measurements: &Measurements) -> Result<Vec<(&'static str, Section)>, LimitError> {
    let sizes = StateSizes::measure()?;
    let algorithms = algorithms::all(&sizes)?;
    let section = |page, name, text: String| (page, Section { name, text });
    let memory = |page, text: String| section(page, "memory", text);
    let fixed = |bytes: usize| format!("The state of one subject always takes {bytes} bytes.");
    let growing = |size: &RecordSize, record: &str| {
        let RecordSize { base, per_record } = size;
        format!("The state of one subject takes {base} bytes, plus {per_record} bytes per {record}.")
    };
    let holding = |size: &HoldSize, hold: &str| {
        let HoldSize { least, most, per_hold } = size;
        format!(
            "The state of one subject takes {least} to {most} bytes. Each {hold} has a record of {per_hold} bytes under a \
             separate key."
        )
    };
    Ok(vec![
        section("README.md", "comparison", algorithms::comparison(&algorithms)),
        section("README.md", "refunds", algorithms::refunds(&algorithms)),
        section("README.md", "operations", algorithms::operations(&algorithms)),
        memory("fixed-window.md", fixed(sizes.fixed_window)),
        section("fixed-window.md", "measured", measured::fixed_window(measurements)),
        memory("sliding-window.md", buckets_table(&sizes)),
        section("sliding-window.md", "measured", measured::sliding_window(measurements)),
        section("sliding-window.md", "trace", measured::trace(measurements)),
        memory(
            "sliding-log.md",
            format!(
                "{}\nA log of 100 entries takes {} bytes, a log of 10,000 entries takes {} bytes.",
                growing(&sizes.log, "entry"),
                count(sizes.log.with_records(100)),
                count(sizes.log.with_records(10_000)),
            ),
        ),
        memory("token-bucket.md", fixed(sizes.bucket)),
        memory("leaky-bucket.md", fixed(sizes.bucket)),
        memory("concurrency.md", holding(&sizes.concurrency, "lease")),
        memory("quota.md", holding(&sizes.quota, "reservation")),
        memory("meter.md", fixed(sizes.meter)),
        memory("penalty.md", fixed(sizes.penalty)),
    ])
}

fn buckets_table(sizes: &StateSizes) -> String {
    let mut table = vec!["| buckets | bytes per subject |".to_owned(), "|---|---|".to_owned()];
    table.extend(sizes.windows.iter().map(|(buckets, bytes)| format!("| {buckets} | {bytes} |")));
    table.join("\n")
}
