//! `tollgate guide`: questions that lead to a limit.
//!
//! The questions are those of `docs/concepts/choosing.md`, which also explains the reasons.

use std::process::ExitCode;

use anyhow::Result;
use clap::ValueEnum;

use crate::cli::terminal::{DIM, GREEN, STRONG};
use crate::cli::{exit, terminal};

/// Find the right limit by answering a few questions
///
/// The command prints the questions in order, each with a line for the rules file.
///
///   tollgate guide
///   tollgate guide --want rate
#[derive(clap::Args)]
#[command(
    verbatim_doc_comment,
    after_long_help = "\
Exit codes:
  0  the questions were printed
  2  the command line is invalid"
)]
pub(crate) struct Args {
    /// Print only the questions about this
    #[arg(long)]
    want: Option<Want>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Want {
    /// A number of things at the same time
    Concurrency,
    /// An amount per hour, day, month or year
    Quota,
    /// A wait that grows with every failure
    Failures,
    /// A number that time does not change
    Total,
    /// An amount per short time: all of the following
    Rate,
    /// A rate whose callers wait instead of being refused
    Waiting,
    /// A rate with bursts
    Bursts,
    /// A rate that must hold in every window
    Exact,
    /// A rate that must hold approximately in every window
    About,
    /// A rate per clock window
    Clock,
}

/// A question, and the limit to use if the answer is yes.
struct Choice {
    wants: &'static [Want],
    question: &'static str,
    examples: &'static str,
    limit: &'static str,
    note: &'static str,
}

const CHOICES: [Choice; 10] = [
    Choice {
        wants: &[Want::Concurrency],
        question: "Is it about how many at the same time?",
        examples: "work that runs for a while and holds something",
        limit: "{ concurrency: 3, lease: 30s }",
        note: "if a holder crashes, its place is free again when its lease expires",
    },
    Choice {
        wants: &[Want::Quota],
        question: "Is it an amount per hour, day, month or contract year?",
        examples: "something that is sold, budgeted or billed",
        limit: "{ quota: 10000000/month, zone: Europe/Berlin, grace: 5% }",
        note: "add a rate, so that no client spends a month's quota in a minute",
    },
    Choice {
        wants: &[Want::Failures],
        question: "Is it about failures, not requests?",
        examples: "wrong passwords, wrong codes",
        limit: "{ penalty: 1s, free: 3, factor: 2, longest: 15min, memory: 1h }",
        note: "report how each attempt ended; a success clears the record",
    },
    Choice {
        wants: &[Want::Total],
        question: "Is it a number that time does not change?",
        examples: "seats, stored items, credits",
        limit: "{ meter: 50 }",
        note: "consumption decreases only when units are given back",
    },
    Choice {
        wants: &[Want::Rate, Want::Waiting],
        question: "It is a rate. May the caller wait instead of being refused?",
        examples: "outgoing calls, workers, queues",
        limit: "{ leaky-bucket: 10/s, queue: 50 }",
        note: "the decision contains the delay",
    },
    Choice {
        wants: &[Want::Rate, Want::Bursts],
        question: "Are short bursts welcome, if the long-term rate holds?",
        examples: "most interfaces",
        limit: "{ token-bucket: 2/s, burst: 240 }",
        note: "the whole burst can be used at once",
    },
    Choice {
        wants: &[Want::Rate, Want::Exact],
        question: "Must \"at most L in any W\" hold to the unit, and is L small?",
        examples: "up to about a thousand",
        limit: "{ sliding-log: 5/10min }",
        note: "it stores every admitted request, which needs memory",
    },
    Choice {
        wants: &[Want::Rate, Want::Exact],
        question: "Must it hold, and is L large, or are the subjects many?",
        examples: "hourly ceilings of a tenant",
        limit: "{ sliding-window: 100000/h, buckets: 60, counting: strict }",
        note: "it may refuse early, by at most one bucket",
    },
    Choice {
        wants: &[Want::Rate, Want::About],
        question: "Is \"about L in any W\" enough?",
        examples: "public traffic, fair use",
        limit: "{ sliding-window: 1000/min, buckets: 6, counting: interpolated }",
        note: "it estimates the oldest bucket",
    },
    Choice {
        wants: &[Want::Rate, Want::Clock],
        question: "Does the contract speak of clock windows?",
        examples: "1,000 per hour, on the hour",
        limit: "{ fixed-window: 1000/h }",
        note: "up to twice the limit can pass around the edge of a window",
    },
];

/// Questions about every rule, once its limit is chosen.
const FOLLOW_UPS: [(&str, &str); 4] = [
    ("Do requests have different costs?", "cost: { default: 1, by: { action: { search: 5, export: 50 } } }"),
    (
        "What if the store is down?",
        "on_failure: open for fairness, degraded to switch off expensive work, closed for money and accounts",
    ),
    (
        "How many subjects, how much memory?",
        "a token bucket is the smallest, a sliding log grows with its limit; see `tollgate estimate`",
    ),
    (
        "Is it billed?",
        "use a quota with the zone of the contract; the count of a rate limiter is not an invoice",
    ),
];

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    terminal::print(&text(args.want))?;
    Ok(exit::SUCCESS)
}

fn text(want: Option<Want>) -> String {
    let fits = |choice: &Choice| want.is_none_or(|want| choice.wants.contains(&want));
    let mut out = String::from(
        "Answer the questions in order and stop at the first yes. If two answers fit, write two rules: one check covers both.\n",
    );
    for (number, Choice { question, examples, limit, note, .. }) in
        CHOICES.iter().filter(|choice| fits(choice)).enumerate().map(|(index, choice)| (index + 1, choice))
    {
        out += &format!("\n{number:>2}. {STRONG}{question}{STRONG:#} {DIM}({examples}){DIM:#}\n");
        out += &format!("    {GREEN}limit: {limit}{GREEN:#}\n    {note}\n");
    }
    out += "\nThen decide for every rule:\n";
    let width = FOLLOW_UPS.iter().map(|(question, _)| question.len()).max().unwrap_or(0);
    for (question, answer) in FOLLOW_UPS {
        out += &format!("  {question:width$}  {answer}\n");
    }
    out + "\nTry a limit: tollgate try 'token-bucket: 2/s, burst: 240'. Details: docs/concepts/choosing.md\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate::rules::load_limit;
    use tollgate_document::{Problems, Source};

    #[test]
    fn every_limit_is_valid_and_shown_in_choosing_md() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/concepts/choosing.md");
        let page = std::fs::read_to_string(page).expect("the page can be read");
        for choice in &CHOICES {
            let mut problems = Problems::new();
            let source = Source::new("guide", choice.limit.as_bytes());
            assert!(load_limit(&source, &mut problems).is_some(), "{}: {problems:?}", choice.limit);
            assert!(page.contains(&format!("`limit: {}`", choice.limit)), "{}", choice.limit);
            assert!(page.contains(&format!("**{}**", choice.question)), "{}", choice.question);
        }
    }

    #[test]
    fn every_want_has_a_question() {
        for want in Want::value_variants() {
            assert!(CHOICES.iter().any(|choice| choice.wants.contains(want)), "{want:?}");
        }
    }
}
