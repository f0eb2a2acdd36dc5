//! The estimate as tables.

use tollgate::core::Algorithm;
use tollgate::store::redis::Engine;

use super::{Estimate, Growth, Row};
use crate::cli::terminal::{DIM, STRONG};

/// Formats the tables, the totals and the assumptions.
pub(super) fn text(estimate: &Estimate) -> String {
    let mut out = subject_table(estimate);
    out += &format!("\n{STRONG}{}{STRONG:#}\n", total(estimate));
    if estimate.rules.iter().any(|row| row.growth.is_some()) {
        out += &format!("\n{}", growth_table(estimate));
        out += &format!("\n{STRONG}{}{STRONG:#}\n", worst_case(estimate));
    }
    out + &assumptions(estimate)
}

/// The size of a new subject of each rule, in bytes.
fn subject_table(estimate: &Estimate) -> String {
    let width = width(estimate);
    let mut out = format!(
        "{:<width$}  {:<14}  {:>5} {:>7} {:>9} {:>7} {:>10}  {:>13} {:>10}\n",
        "rule", "algorithm", "key", "value", "overhead", "expiry", "subject", "subjects", "total"
    );
    let share = estimate.table_share();
    for row in &estimate.rules {
        let one = row.one;
        out += &format!(
            "{:<width$}  {:<14}  {:>5} {:>7} {:>9} {:>7} {:>10}  {:>13} {:>10}\n",
            row.rule,
            row.algorithm.name(),
            one.key,
            one.value,
            one.overhead + share,
            one.expiry,
            grouped(one.total() + share),
            grouped(row.subjects),
            size((one.total() + share) * row.subjects),
        );
    }
    for (rule, reason) in &estimate.without_state {
        out += &format!("{DIM}{rule:<width$}  no state: {reason}{DIM:#}\n");
    }
    out
}

/// The growth of each rule whose state grows with use, and its worst case.
fn growth_table(estimate: &Estimate) -> String {
    let width = width(estimate);
    let mut out = format!(
        "{:<width$}  {:<14}  {:>10} {:>9} {:>21} {:>10}\n",
        "rule", "grows per", "bytes each", "at most", "largest subject", "total"
    );
    let share = estimate.table_share();
    for row in &estimate.rules {
        let Some(Growth { records, full }) = &row.growth else { continue };
        out += &format!(
            "{:<width$}  {:<14}  {:>10} {:>9} {:>21} {:>10}\n",
            row.rule,
            record_name(row.algorithm),
            grouped(record_bytes(row.algorithm, records.bytes)),
            grouped(records.most),
            grouped(full.total() + share),
            size((full.total() + share) * row.subjects),
        );
    }
    out
}

fn total(estimate: &Estimate) -> String {
    let keys = grouped(estimate.keys);
    format!("{} for {keys} keys", size(estimate.total(|row| row.one)))
}

fn worst_case(estimate: &Estimate) -> String {
    format!("{} if every subject is at its limit", size(estimate.total(Row::size_max)))
}

fn assumptions(estimate: &Estimate) -> String {
    let engine = match estimate.footprint.engine {
        Engine::Redis => "Redis 6.2 or 7",
        Engine::Valkey => "Valkey 9",
    };
    format!(
        "\nAssumptions: {engine} with jemalloc; every subject has sent one request and has not expired. Sizes are in bytes.\n\
         Each request with an id needs {} more bytes for {} s, and {} more for each further rule that matches.\n\
         Not included: an empty server, fragmentation, buffers of clients and replicas. Reserve a quarter for them.\n",
        estimate.request_id, estimate.horizon_s, estimate.request_id_further
    )
}

/// What each record of the algorithm stands for.
const fn record_name(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::SlidingLog => "request",
        Algorithm::Concurrency => "lease",
        _ => "reservation",
    }
}

/// The bytes that one more record adds. A sliding log reserves an eighth more than it uses.
const fn record_bytes(algorithm: Algorithm, bytes: u64) -> u64 {
    match algorithm {
        Algorithm::SlidingLog => (bytes * 9).div_ceil(8),
        _ => bytes,
    }
}

fn width(estimate: &Estimate) -> usize {
    let rules = estimate.rules.iter().map(|row| row.rule.len());
    rules
        .chain(estimate.without_state.iter().map(|(rule, _)| rule.len()))
        .max()
        .unwrap_or(0)
        .max("rule".len())
}

/// Formats a number like `1,234,567`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Formats a size in the largest fitting unit, rounded up to a tenth.
fn size(bytes: u64) -> String {
    let units = [(1_u64 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.into_iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => {
            let tenths = (u128::from(bytes) * 10).div_ceil(u128::from(unit));
            format!("{}.{} {name}", tenths / 10, tenths % 10)
        }
        None => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_and_sizes_are_rounded_up() {
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (12_345_678, "12,345,678")] {
            assert_eq!(grouped(number), text);
        }
        for (bytes, text) in [
            (1_023, "1023 B"),
            (1_024, "1.0 KiB"),
            (1_025, "1.1 KiB"),
            (1 << 20, "1.0 MiB"),
            (3 << 29, "1.5 GiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }
}
