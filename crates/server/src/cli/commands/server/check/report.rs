//! Prints decisions as a table or as JSON, and counts them.

use std::process::ExitCode;

use anyhow::Result;
use clap::ValueEnum;
use serde_json::json;
use tollgate::Decision;
use tollgate::core::decision::{Numbers, RetryAfter, Source};
use tollgate::core::rules::{Mode, Rollout, RuleSet, Unmatched};
use tollgate::core::{Attributes, Time};

use crate::cli::terminal::{DIM, GREEN, RED, YELLOW, duration};
use crate::cli::{exit, terminal};

/// The output format.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum Format {
    /// For people
    Table,
    /// For programs: one JSON object per check and line
    Json,
}

/// Prints each decision when it is made, and counts them.
pub(super) struct Report {
    format: Format,
    table: Table,
    admitted: u64,
    refused: u64,
    /// A rule that refused without counting.
    uncounted: Option<String>,
}

impl Report {
    /// Creates a report whose table is wide enough for these times.
    pub(super) fn new(
        format: Format,
        rules: &RuleSet,
        attributes: &Attributes<'_>,
        times: &[Time],
    ) -> Report {
        let table = Table::new(rules, attributes, times);
        Report { format, table, admitted: 0, refused: 0, uncounted: None }
    }

    /// Prints a decision of this instant; before the first one, the header of the table.
    pub(super) fn print(&mut self, decision: &Decision, now: Time) -> Result<()> {
        if self.format == Format::Table && self.admitted + self.refused == 0 {
            terminal::print(&self.table.header())?;
        }
        *(if decision.allowed() { &mut self.admitted } else { &mut self.refused }) += 1;
        if decision.source() == Source::Rule {
            self.uncounted = decision.headline().map(|rule| rule.id().to_owned());
        }
        terminal::print(&match self.format {
            Format::Table => self.table.rows(decision, now),
            Format::Json => json_line(decision, now),
        })
    }

    /// Prints the totals and returns the exit code.
    pub(super) fn finish(self) -> Result<ExitCode> {
        let Report { format, admitted, refused, uncounted, .. } = self;
        if format == Format::Table {
            terminal::print(&format!("\n{admitted} admitted, {refused} refused\n"))?;
            if let Some(rule) = uncounted {
                let why = "its subject is missing, or its limit is `deny`; `tollgate explain` shows which";
                terminal::print(&format!(
                    "{YELLOW}note:{YELLOW:#} {rule} refuses without counting: {why}\n"
                ))?;
            }
        }
        Ok(if refused == 0 { exit::SUCCESS } else { exit::NEGATIVE })
    }
}

fn json_line(decision: &Decision, now: Time) -> String {
    let mut members = String::new();
    decision.write_json_members(&mut members);
    format!("{{{members},\"at\":{}}}\n", json!(terminal::instant(now)))
}

/// The widths of the columns whose texts differ in length.
struct Table {
    time: usize,
    rule: usize,
}

impl Table {
    fn new(rules: &RuleSet, attributes: &Attributes<'_>, times: &[Time]) -> Table {
        let time = times.iter().map(|&time| terminal::instant(time).len()).max().unwrap_or(0);
        let matching = rules.matching(attributes);
        let several = matching.len() > 1;
        let names = matching.iter().map(|&index| {
            let rule = &rules.rules()[index as usize];
            let blocking = rule.mode == Mode::Enforce && rule.rollout == Rollout::ALL;
            if several { indented(rule.keyspace.rule(), blocking).len() } else { rule.keyspace.rule().len() }
        });
        let no_rule = if rules.unmatched() == Unmatched::Refuse { UNMATCHED_REFUSED } else { NO_RULE };
        let rule = names.chain([no_rule.len()]).max().unwrap_or(0);
        Table { time, rule }
    }

    fn header(&self) -> String {
        let Table { time, rule } = *self;
        format!(
            "{:<time$}  {:<8}  {:<rule$}  {:>9} {:>8}  {:>12} {:>15}\n",
            "time", "answer", "rule", "remaining", "delay", "retry after", "reset in"
        )
    }

    /// Formats the headline, and every rule if there are several.
    fn rows(&self, decision: &Decision, now: Time) -> String {
        let (answer, style) = if decision.allowed() { ("admitted", GREEN) } else { ("refused", RED) };
        let name = match (decision.headline(), decision.source()) {
            (Some(rule), _) => rule.id(),
            (None, Source::List) if decision.allowed() => "(bypass list)",
            (None, Source::List) => "(deny list)",
            (None, _) if !decision.allowed() => UNMATCHED_REFUSED,
            (None, _) => NO_RULE,
        };
        let time = terminal::instant(now);
        let numbers = decision.headline().and_then(|rule| rule.outcome().numbers);
        let mut rows = self.row(&time, &format!("{style}{answer:<8}{style:#}"), name, numbers);
        let rules: Vec<_> = decision.rules().collect();
        for rule in rules.iter().filter(|_| rules.len() > 1) {
            let answer = if rule.allowed() { "admits" } else { "refuses" };
            let name = indented(rule.id(), rule.blocking());
            rows += &self.row("", &format!("{DIM}{answer:<8}{DIM:#}"), &name, rule.outcome().numbers);
        }
        rows
    }

    fn row(&self, time: &str, answer: &str, name: &str, numbers: Option<Numbers>) -> String {
        let Table { time: time_width, rule } = *self;
        let or_dash = |ms: u64| if ms == 0 { "-".to_owned() } else { duration(ms) };
        let cells = match numbers {
            None => ["-", "-", "-", "-"].map(str::to_owned),
            Some(numbers) => [
                numbers.remaining.to_string(),
                or_dash(numbers.delay_ms),
                match numbers.retry_after {
                    RetryAfter::Ms(ms) => or_dash(ms),
                    RetryAfter::Never => "never".to_owned(),
                },
                duration(numbers.reset_after_ms),
            ],
        };
        let [remaining, delay, retry, reset] = cells;
        format!(
            "{time:<time_width$}  {answer}  {name:<rule$}  {remaining:>9} {delay:>8}  {retry:>12} {reset:>15}\n"
        )
    }
}

const NO_RULE: &str = "(no rule matches)";
const UNMATCHED_REFUSED: &str = "(unmatched: refuse)";

/// Formats the name of a rule below the headline.
fn indented(name: &str, blocking: bool) -> String {
    if blocking { format!("  {name}") } else { format!("  {name} (shadow)") }
}
