//! `tollgate try`: one limit, a handful of requests, every answer in a table.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use tollgate::core::algorithm::bucket::Bucket;
use tollgate::core::algorithm::concurrency::Concurrency;
use tollgate::core::algorithm::fixed_window::FixedWindow;
use tollgate::core::algorithm::sliding_log::SlidingLog;
use tollgate::core::algorithm::sliding_window::{Counting, SlidingWindow};
use tollgate::core::decision::RetryAfter;
use tollgate::core::{
    Decision, Item, Limit, OnFailure, Operation, Plan, Scope, Span, SubjectHasher, Time, Token,
};
use tollgate::{Clock, ManualClock, MemoryStore, shorthand};

/// Where the clock stands when the first request comes: a round number is easy to read.
const START: Time = Time::from_us(1_700_000_000_000_000);

/// Asks a limit in memory `--times` times, `--every` so long apart, on a clock of its own: nothing is waited for.
///
/// The limit is an algorithm, its rate and its options:
///
///   token-bucket 2/s burst 5            leaky-bucket 10/s capacity 50
///   fixed-window 100/min                leaky-bucket 10/s queue 50
///   sliding-log 5/10min                 concurrency 3 lease 30s
///   sliding-window 100/min buckets 6 [strict]
///
/// Exit codes: 0 every request was admitted, 1 at least one was refused, 2 the command line is wrong.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// The limit, like `token-bucket 2/s burst 5`
    #[arg(required = true, num_args = 1.., value_name = "LIMIT")]
    limit: Vec<String>,
    /// How many requests
    #[arg(long, default_value_t = 8)]
    times: u32,
    /// Time between two requests
    #[arg(long, default_value = "100ms", value_parser = shorthand::span)]
    every: Span,
    /// What each request costs
    #[arg(long, default_value_t = 1)]
    cost: u64,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let words: Vec<&str> = args.limit.iter().flat_map(|word| word.split_whitespace()).collect();
    let limit = limit(&words).with_context(|| format!("the limit {:?} makes no sense", words.join(" ")))?;
    let clock = ManualClock::at(START);
    let store = MemoryStore::with_clock(&clock);
    let scope = Scope::new("try", limit.algorithm().name())?;
    let subject = SubjectHasher::new([0; 32]).subject([("user", "you")]);
    println!(
        "{:>10}  {:<8} {:>9} {:>7}  {:>11}  {:>9}",
        "time", "answer", "remaining", "delay", "retry after", "reset in"
    );
    let mut refused = 0;
    for number in 1..=args.times {
        let mut plan = Plan::new();
        plan.push(Item {
            key: scope.key(subject),
            limit,
            operation: Operation::Charge { cost: args.cost, token: Token(number.into()) },
            blocking: true,
            on_failure: OnFailure::Closed,
        })?;
        let outcome = store.apply_now(&plan);
        let decision = Decision::new(&plan, Ok(&outcome))?;
        println!("{}", row(&decision, clock.now()));
        refused += u32::from(!decision.allowed);
        clock.advance(args.every);
    }
    println!("\n{} admitted, {refused} refused by {}", args.times - refused, words.join(" "));
    Ok(if refused == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn row(decision: &Decision<'_>, now: Time) -> String {
    let Some(numbers) = decision.headline().and_then(|rule| rule.numbers) else { return String::new() };
    let answer = if decision.allowed { "admitted" } else { "refused" };
    let wait = match numbers.retry_after {
        RetryAfter::Ms(0) => "-".to_owned(),
        RetryAfter::Ms(ms) => format!("{ms}ms"),
        RetryAfter::Never => "never".to_owned(),
    };
    let delay = if numbers.delay_ms == 0 { "-".to_owned() } else { format!("{}ms", numbers.delay_ms) };
    let time = format!("+{}ms", (now - START).us() / 1_000);
    let reset = format!("{}ms", numbers.reset_after_ms);
    format!("{time:>10}  {answer:<8} {:>9} {delay:>7}  {wait:>11}  {reset:>9}", numbers.remaining)
}

fn limit(words: &[&str]) -> Result<Limit> {
    let (&[algorithm, rate], options) =
        words.split_at_checked(2).context("write an algorithm and its rate")?
    else {
        bail!("write an algorithm and its rate");
    };
    let options = Options { words: options };
    options.allow(match algorithm {
        "concurrency" => &["lease"],
        "token-bucket" => &["burst"],
        "leaky-bucket" => &["capacity", "queue"],
        "sliding-window" => &["buckets", "strict"],
        _ => &[],
    })?;
    let limit = match algorithm {
        "concurrency" => {
            let lease = shorthand::span(
                options.get("lease").context("say how long a `lease` is, like `lease 30s`")?,
            )?;
            Limit::Concurrency(Concurrency::new(shorthand::number(rate)?, lease)?)
        }
        "token-bucket" => {
            let rate = shorthand::rate(rate)?;
            let burst = options.number("burst")?.unwrap_or(rate.amount);
            Limit::Bucket(Bucket::tokens(rate.amount, rate.period, burst)?)
        }
        "leaky-bucket" => {
            let rate = shorthand::rate(rate)?;
            match (options.number("capacity")?, options.number("queue")?) {
                (Some(capacity), None) => Limit::Bucket(Bucket::meter(rate.amount, rate.period, capacity)?),
                (None, Some(queue)) => Limit::Bucket(Bucket::queue(rate.amount, rate.period, queue)?),
                _ => bail!("a leaky bucket has either a `capacity` or a `queue`"),
            }
        }
        "fixed-window" => {
            let rate = shorthand::rate(rate)?;
            Limit::FixedWindow(FixedWindow::new(rate.amount, rate.period)?)
        }
        "sliding-log" => {
            let rate = shorthand::rate(rate)?;
            Limit::SlidingLog(SlidingLog::new(rate.amount, rate.period)?)
        }
        "sliding-window" => {
            let rate = shorthand::rate(rate)?;
            let counting = if words.contains(&"strict") { Counting::Strict } else { Counting::Interpolated };
            let buckets = options.number("buckets")?.unwrap_or(1);
            Limit::SlidingWindow(SlidingWindow::new(rate.amount, rate.period, buckets, counting)?)
        }
        other => bail!(
            "{other:?} is no algorithm to try; there are token-bucket, leaky-bucket, fixed-window, sliding-window, \
             sliding-log and concurrency"
        ),
    };
    Ok(limit)
}

/// Names and values after the rate.
struct Options<'w> {
    words: &'w [&'w str],
}

impl<'w> Options<'w> {
    fn allow(&self, names: &[&str]) -> Result<()> {
        let names_only = self.words.iter().filter(|word| !word.starts_with(|c: char| c.is_ascii_digit()));
        match names_only.copied().find(|word| !names.contains(word)) {
            Some(word) if names.is_empty() => bail!("{word:?} is no option; this algorithm has none"),
            Some(word) => bail!("{word:?} is no option of this algorithm; it has {}", names.join(", ")),
            None => Ok(()),
        }
    }

    fn get(&self, name: &str) -> Option<&'w str> {
        let at = self.words.iter().position(|&word| word == name)?;
        self.words.get(at + 1).copied()
    }

    fn number(&self, name: &str) -> Result<Option<u64>> {
        self.get(name).map(shorthand::number).transpose().with_context(|| format!("the value of `{name}`"))
    }
}
