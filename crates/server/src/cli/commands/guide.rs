//! `tollgate guide`: from the sentence that must be true to the limit that keeps it true.
//!
//! The path is that of `docs/concepts/choosing.md`, which also says why.

use std::process::ExitCode;

use anyhow::Result;
use clap::ValueEnum;

use crate::cli::terminal::{DIM, GREEN, STRONG};
use crate::cli::{exit, terminal};

/// Lead from what must be true to the limit that keeps it true
///
/// A few questions in order, with a line for the rules file at the end of each.
///
///   tollgate guide
///   tollgate guide --want rate
#[derive(clap::Args)]
#[command(verbatim_doc_comment, after_long_help = "Exit codes: 0 printed, 2 the command line is wrong.")]
pub(crate) struct Args {
    /// Show only the ends that fit this
    #[arg(long)]
    want: Option<Want>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Want {
    /// How many at the same time
    Concurrency,
    /// So much per hour, day, month or year
    Quota,
    /// Slower with every failure
    Failures,
    /// A number that time does not change
    Total,
    /// So much per short time: all that follow
    Rate,
    /// A rate whose callers wait instead of being refused
    Waiting,
    /// A rate with bursts
    Bursts,
    /// At most so much in any window, always
    Exact,
    /// About so much in any window
    About,
    /// So much per window of the clock
    Clock,
}

/// A question, and where a yes leads.
struct End {
    wants: &'static [Want],
    question: &'static str,
    such_as: &'static str,
    limit: &'static str,
    mind: &'static str,
}

const ENDS: [End; 10] = [
    End {
        wants: &[Want::Concurrency],
        question: "Is it about how many at the same time?",
        such_as: "work that runs for a while and holds something",
        limit: "{ concurrency: 3, lease: 30s }",
        mind: "a crashed holder's place is free again when its lease ends",
    },
    End {
        wants: &[Want::Quota],
        question: "Is it an amount per hour, day, month or contract year?",
        such_as: "something that is sold, budgeted or billed",
        limit: "{ quota: 10000000/month, zone: Europe/Berlin, grace: 5% }",
        mind: "put a rate beside it, so that nobody spends a month in a minute",
    },
    End {
        wants: &[Want::Failures],
        question: "Is it about failures, not requests?",
        such_as: "wrong passwords, wrong codes",
        limit: "{ penalty: 1s, free: 3, factor: 2, longest: 15min, memory: 1h }",
        mind: "report how each attempt went; a success clears the record",
    },
    End {
        wants: &[Want::Total],
        question: "Is it a number that time does not change?",
        such_as: "seats, stored items, credits",
        limit: "{ meter: 50 }",
        mind: "it goes down only when something is given back",
    },
    End {
        wants: &[Want::Rate, Want::Waiting],
        question: "It is a rate. May the caller wait instead of being refused?",
        such_as: "outgoing calls, workers, queues",
        limit: "{ leaky-bucket: 10/s, queue: 50 }",
        mind: "the answer says how long to wait",
    },
    End {
        wants: &[Want::Rate, Want::Bursts],
        question: "Are short bursts welcome, if the long-term rate holds?",
        such_as: "most interfaces",
        limit: "{ token-bucket: 2/s, burst: 240 }",
        mind: "the whole burst can come at once",
    },
    End {
        wants: &[Want::Rate, Want::Exact],
        question: "Must \"at most L in any W\" hold to the unit, and is L small?",
        such_as: "up to about a thousand",
        limit: "{ sliding-log: 5/10min }",
        mind: "it remembers every admitted request, which takes memory",
    },
    End {
        wants: &[Want::Rate, Want::Exact],
        question: "Must it hold, and is L large, or are the subjects many?",
        such_as: "hourly ceilings of a tenant",
        limit: "{ sliding-window: 100000/h, buckets: 60, counting: strict }",
        mind: "it may refuse a little early, by one bucket",
    },
    End {
        wants: &[Want::Rate, Want::About],
        question: "Is \"about L in any W\" enough?",
        such_as: "public traffic, fair use",
        limit: "{ sliding-window: 1000/min, buckets: 6, counting: interpolated }",
        mind: "it estimates the oldest bucket",
    },
    End {
        wants: &[Want::Rate, Want::Clock],
        question: "Does the contract speak of clock windows?",
        such_as: "1,000 per hour, on the hour",
        limit: "{ fixed-window: 1000/h }",
        mind: "around the edge of a window twice as much can pass",
    },
];

/// What to ask of any rule once its limit is found.
const THEN: [(&str, &str); 4] = [
    ("Do requests weigh differently?", "cost: { default: 1, by: { action: { search: 5, export: 50 } } }"),
    (
        "What if the store is down?",
        "on_failure: open for fairness, local 25% for a machine, closed for money and accounts",
    ),
    (
        "How many subjects, how much memory?",
        "a bucket is the smallest, a log grows with its limit; see `tollgate estimate`",
    ),
    ("Is it billed?", "take a quota with the contract's zone; the count of a rate is no invoice"),
];

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    terminal::print(&path(args.want))?;
    Ok(exit::GOOD)
}

fn path(want: Option<Want>) -> String {
    let fits = |end: &End| want.is_none_or(|want| end.wants.contains(&want));
    let mut out = String::from(
        "Stop at the first yes. If two fit, write two rules: a check asks both, all or nothing.\n",
    );
    for (number, End { question, such_as, limit, mind, .. }) in
        ENDS.iter().filter(|end| fits(end)).enumerate().map(|(index, end)| (index + 1, end))
    {
        out += &format!("\n{number:>2}. {STRONG}{question}{STRONG:#} {DIM}({such_as}){DIM:#}\n");
        out += &format!("    {GREEN}limit: {limit}{GREEN:#}\n    {mind}\n");
    }
    out += "\nThen ask of every rule:\n";
    let width = THEN.iter().map(|(question, _)| question.len()).max().unwrap_or(0);
    for (question, answer) in THEN {
        out += &format!("  {question:width$}  {answer}\n");
    }
    out + "\nSee one decide: tollgate try 'token-bucket: 2/s, burst: 240'. Why: docs/concepts/choosing.md\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate::rules::load_limit;
    use tollgate_document::{Problems, Source};

    #[test]
    fn every_end_is_a_limit_that_loads_and_that_the_page_shows() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/concepts/choosing.md");
        let page = std::fs::read_to_string(page).expect("the page can be read");
        for end in &ENDS {
            let mut problems = Problems::new();
            let source = Source::new("guide", end.limit.as_bytes());
            assert!(load_limit(&source, &mut problems).is_some(), "{}: {problems:?}", end.limit);
            assert!(page.contains(&format!("`limit: {}`", end.limit)), "{}", end.limit);
            // The first question about a rate also says that it is one.
            assert!(page.contains(&format!("**{}**", end.question)), "{}", end.question);
        }
    }

    #[test]
    fn every_want_leads_somewhere() {
        for want in Want::value_variants() {
            assert!(ENDS.iter().any(|end| end.wants.contains(want)), "{want:?}");
        }
    }
}
