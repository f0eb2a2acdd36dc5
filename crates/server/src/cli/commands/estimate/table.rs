//! The estimate for people.

use tollgate::core::Algorithm;
use tollgate::store::redis::Engine;

use super::{Estimate, Growth, Row};
use crate::cli::terminal::{DIM, STRONG};

/// Tables, totals, and what they assume.
pub(super) fn text(estimate: &Estimate) -> String {
    let mut out = subjects(estimate);
    out += &format!("\n{STRONG}{}{STRONG:#}\n", total(estimate));
    if estimate.rules.iter().any(|row| row.growth.is_some()) {
        out += &format!("\n{}", growths(estimate));
        out += &format!("\n{STRONG}{}{STRONG:#}\n", worst(estimate));
    }
    out + &assumed(estimate)
}

/// What a subject that has just come takes, in bytes.
fn subjects(estimate: &Estimate) -> String {
    let width = width(estimate);
    let mut out = format!(
        "{:<width$}  {:<14}  {:>5} {:>7} {:>9} {:>7} {:>10}  {:>13} {:>10}\n",
        "rule", "algorithm", "key", "value", "overhead", "expiry", "a subject", "subjects", "together"
    );
    let share = estimate.share();
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
    for (rule, why) in &estimate.without {
        out += &format!("{DIM}{rule:<width$}  nothing: {why}{DIM:#}\n");
    }
    out
}

/// What grows with use, and the worst case.
fn growths(estimate: &Estimate) -> String {
    let width = width(estimate);
    let mut out = format!(
        "{:<width$}  {:<14}  {:>10} {:>9} {:>21} {:>10}\n",
        "grows with", "each", "on top", "at most", "a subject at the most", "together"
    );
    let share = estimate.share();
    for row in &estimate.rules {
        let Some(Growth { records, full }) = &row.growth else { continue };
        out += &format!(
            "{:<width$}  {:<14}  {:>10} {:>9} {:>21} {:>10}\n",
            row.rule,
            record(row.algorithm),
            grouped(on_top(row.algorithm, records.bytes)),
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

fn worst(estimate: &Estimate) -> String {
    format!("{} if every subject is at its limit", size(estimate.total(Row::most)))
}

fn assumed(estimate: &Estimate) -> String {
    let server = match estimate.footprint.engine {
        Engine::Redis => "Redis 6.2 or 7",
        Engine::Valkey => "Valkey 9",
    };
    format!(
        "\nAssumed: {server} with jemalloc; every subject has been there once and is not forgotten yet; sizes in bytes.\n\
         Each request with an id takes {} bytes more, for {} s, and {} for each further rule it meets.\n\
         Not counted: an empty server, fragmentation, buffers of clients and replicas. Leave them a quarter.\n",
        estimate.request_id, estimate.horizon_s, estimate.request_id_further
    )
}

/// What a rule of this algorithm keeps several of.
const fn record(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::SlidingLog => "request",
        Algorithm::Concurrency => "lease",
        _ => "reservation",
    }
}

/// A log has an eighth to spare.
const fn on_top(algorithm: Algorithm, bytes: u64) -> u64 {
    match algorithm {
        Algorithm::SlidingLog => (bytes * 9).div_ceil(8),
        _ => bytes,
    }
}

fn width(estimate: &Estimate) -> usize {
    let rules = estimate.rules.iter().map(|row| row.rule.len());
    rules
        .chain(estimate.without.iter().map(|(rule, _)| rule.len()))
        .max()
        .unwrap_or(0)
        .max("grows with".len())
}

/// `1,234,567`.
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

/// In the largest unit of which there is one, rounded up to a tenth.
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
    fn numbers_are_grouped_and_sizes_rounded_up() {
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
