//! One row of the table, and the table.

use std::fmt::Write;
use std::time::Duration;

use serde_json::{Value, json};

use super::account::{ByPolicy, Latencies};
use super::control::Naive;
use super::place::Topology;

/// The figures of one fault on one topology.
#[derive(Clone, Debug)]
pub struct Row {
    /// The name of the fault.
    pub fault: &'static str,
    /// Where the state was.
    pub topology: Topology,
    /// The seed of names and random choices.
    pub seed: u64,
    /// Number of checks.
    pub checks: u64,
    /// Admissions beyond the limits.
    pub over_admitted: u64,
    /// Refusals for which there was room.
    pub falsely_refused: u64,
    /// Charges that no check explains.
    pub double_charged: u64,
    /// Admissions that the store does not have at the end.
    pub lost: u64,
    /// What it may have lost, by this fault.
    pub lost_max: u64,
    /// Our keys that never expire.
    pub orphans: u64,
    /// Answers of failure policies.
    pub by_policy: ByPolicy,
    /// Checks without an answer, because a connection ended or no server ran.
    pub unanswered: u64,
    /// Checks that a server refused to ask, because too much was in flight.
    pub overloaded: u64,
    /// From the instant at which a check was due until its answer.
    pub latencies: Latencies,
    /// From the end of the fault until the store has answered each server.
    pub recovered_after: Duration,
    /// The largest growth of a server's memory, in bytes.
    pub grown_bytes: u64,
    /// How late the machine woke a thread, at worst.
    pub stall: Duration,
    /// Whether the machine had processor time to spare, so that bounds on time were judged.
    pub is_calm: bool,
    /// The naive limiter beside it.
    pub naive: Naive,
    /// What proves that the fault happened.
    pub happened: String,
    /// How long the row took.
    pub took: Duration,
    /// Broken bounds.
    pub problems: Vec<String>,
}

const HEAD: &str = "| fault | store | checks | over | false | double | lost | no TTL | closed/open/local/cap | p50/p99/p99.9/max ms \
                    | back ms | KiB | naive |
|---|---|---|---|---|---|---|---|---|---|---|---|---|
";

impl Row {
    /// Returns the figures as JSON.
    pub fn json(&self) -> Value {
        let us = |time: Duration| time.as_micros() as u64;
        json!({
            "fault": self.fault,
            "topology": self.topology.name(),
            "seed": self.seed,
            "checks": self.checks,
            "over_admitted": self.over_admitted,
            "falsely_refused": self.falsely_refused,
            "double_charged": self.double_charged,
            "lost": self.lost,
            "lost_max": self.lost_max,
            "orphans": self.orphans,
            "by_policy": {
                "closed": self.by_policy.closed,
                "open": self.by_policy.open,
                "local": self.by_policy.local,
                "cap": self.by_policy.cap,
                "wrong": self.by_policy.wrong,
                "opened": self.by_policy.opened,
            },
            "unanswered": self.unanswered,
            "overloaded": self.overloaded,
            "latency_us": {
                "p50": us(self.latencies.p50),
                "p99": us(self.latencies.p99),
                "p999": us(self.latencies.p999),
                "max": us(self.latencies.max),
            },
            "recovered_after_us": us(self.recovered_after),
            "grown_bytes": self.grown_bytes,
            "stall_us": us(self.stall),
            "is_calm": self.is_calm,
            "naive": {
                "checks": self.naive.checks,
                "over_admitted": self.naive.over_admitted,
                "double_charged": self.naive.double_charged,
                "orphans": self.naive.orphans,
            },
            "happened": self.happened,
            "took_ms": self.took.as_millis() as u64,
            "problems": self.problems,
        })
    }

    /// Returns the row of the table.
    fn markdown(&self) -> String {
        let Row { by_policy, latencies, naive, .. } = self;
        let ms = |time: Duration| format!("{:.1}", time.as_secs_f64() * 1_000.0);
        let times = [latencies.p50, latencies.p99, latencies.p999, latencies.max].map(ms).join("/");
        let answers = [by_policy.closed, by_policy.open, by_policy.local, by_policy.cap];
        let answers = answers.map(|count| count.to_string()).join("/");
        let lost = if self.lost_max == 0 && self.lost == 0 {
            "0".to_owned()
        } else {
            format!("{} of {}", self.lost, self.lost_max)
        };
        format!(
            "| {} | {} | {} | {} | {} | {} | {lost} | {} | {answers} | {times} | {} | {} | {}/{}/{} |",
            self.fault,
            self.topology,
            self.checks,
            self.over_admitted,
            self.falsely_refused,
            self.double_charged,
            self.orphans,
            self.recovered_after.as_millis(),
            self.grown_bytes / 1024,
            naive.over_admitted,
            naive.double_charged,
            naive.orphans,
        )
    }
}

/// Returns the table of all rows.
pub fn table(rows: &[Row]) -> String {
    let mut table = HEAD.to_owned();
    for row in rows {
        // Writing to a string does not fail.
        if writeln!(table, "{}", row.markdown()).is_err() {
            break;
        }
    }
    table
}
