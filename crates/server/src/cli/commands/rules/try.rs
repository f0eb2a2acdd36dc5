//! `tollgate try`: one limit, a few requests, and a table of the answers.

use std::process::ExitCode;

use anyhow::{Result, bail};
use tollgate::core::decision::RetryAfter;
use tollgate::core::rules::RuleLimit;
use tollgate::core::{
    Algorithm, Item, Key, Keyspace, Limit, LimitError, Operation, Outcome, Plan, PlanDecision, PlanError,
    Report, Span, SubjectHasher, Time, Token,
};
use tollgate::{Clock, ManualClock, MemoryStore, shorthand};

use crate::cli::terminal::{GREEN, RED, duration};
use crate::cli::{exit, notation, terminal};
use crate::failure::Failure;

/// The time of the first request: a round number is easy to read.
const START: Time = Time::from_us(1_700_000_000_000_000);

/// Try a limit: send it a few requests and print the answers
///
/// The requests run in memory on a simulated clock, so the command does not wait. --times is their number, and --every the
/// time between them.
///
/// Write the limit as in a rules file after `limit:`. The braces can be omitted:
///
///   tollgate try 'token-bucket: 2/s, burst: 5'
///   tollgate try 'sliding-window: 100/min, buckets: 6, counting: strict' --times 200 --every 500ms
///   tollgate try 'leaky-bucket: 10/s, queue: 3'
///   tollgate try 'concurrency: 3, lease: 1s'
///   tollgate try 'quota: 5/day, zone: Europe/Berlin' --every 4h
///   tollgate try 'penalty: 1s, free: 3'
///   tollgate try 'token-bucket: 100/min' --postpaid --cost 60 --every 10s
///
/// Leases of a `concurrency` limit are not released, and every admitted attempt is reported to a `penalty` as a failure.
#[derive(clap::Args)]
#[command(
    verbatim_doc_comment,
    after_long_help = "\
Exit codes:
  0  every request was admitted
  1  at least one request was refused
  2  the command line or the limit is invalid"
)]
pub(crate) struct Args {
    /// Limit, like `token-bucket: 2/s, burst: 5`
    #[arg(required = true, num_args = 1.., value_name = "LIMIT")]
    limit: Vec<String>,
    /// Number of requests
    #[arg(long, default_value_t = 8)]
    times: u32,
    /// Time between two requests
    #[arg(long, default_value = "100ms", value_parser = shorthand::span)]
    every: Span,
    /// Cost of each request
    #[arg(long, default_value_t = 1)]
    cost: u64,
    /// Ask with cost 0, and book the cost of each admitted request afterwards, as a postpaid rule does
    #[arg(long)]
    postpaid: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let text = args.limit.join(" ");
    let rule_limit = notation::limit(&text)?;
    let Some(algorithm) = rule_limit.algorithm() else {
        terminal::print("`deny` refuses every request; there are no numbers to print.\n")?;
        return Ok(exit::NEGATIVE);
    };
    let (cost, capacity) = (args.cost, rule_limit.capacity());
    let rule_limit = if args.postpaid { with_room(rule_limit)? } else { rule_limit };
    if cost > capacity && !args.postpaid {
        let what = format!("cost {cost} exceeds the capacity {capacity}");
        return Err(Failure::new(
            what,
            "lower --cost, or raise the limit; such a request can never be admitted",
        )
        .into());
    }
    let scope = Keyspace::new("try", algorithm.name())?;
    let refused = apply_requests(args, &rule_limit, &scope)?;
    let admitted = args.times - refused;
    terminal::print(&format!("\n{admitted} admitted, {refused} refused by {text}\n"))?;
    Ok(if refused == 0 { exit::SUCCESS } else { exit::NEGATIVE })
}

/// Returns the limit as a postpaid rule has it.
fn with_room(limit: RuleLimit) -> Result<RuleLimit, Failure> {
    if matches!(limit.algorithm(), Some(Algorithm::Concurrency | Algorithm::Penalty)) {
        let what = "this limit cannot be postpaid: it does not count consumption";
        return Err(Failure::new(what, "omit --postpaid, or choose another algorithm"));
    }
    let refused =
        |error: LimitError| Failure::new(error.to_string(), "a postpaid limit leaves room for overdraft");
    limit.with_room_for_records().map_err(refused)
}

/// Applies the requests, prints every answer and returns the number of refusals.
fn apply_requests(args: &Args, rule_limit: &RuleLimit, scope: &Keyspace) -> Result<u32> {
    let clock = ManualClock::at(START);
    let store = MemoryStore::with_clock(&clock);
    let key = scope.key(SubjectHasher::new([0; 32]).subject([("user", "you")]));
    terminal::print(&format!(
        "{:>12}  {:<8} {:>9} {:>8}  {:>12} {:>12}\n",
        "time", "answer", "remaining", "delay", "retry after", "reset in"
    ))?;
    let mut refused = 0;
    for number in 1..=args.times {
        // The numbers of a quota depend on the time.
        let Some(limit) = rule_limit.at(clock.now()) else { bail!("the limit has no period at this time") };
        let cost = if args.postpaid { 0 } else { args.cost };
        let plan = plan(key, limit, Operation::Charge { cost, token: Token(number.into()) })?;
        let mut decision = PlanDecision::new(&plan, &store.apply_now(&plan))?;
        if args.postpaid && decision.allowed {
            let record = self::plan(key, limit, Operation::Record { cost: args.cost })?;
            let Outcome { now, answers, .. } = store.apply_now(&record);
            let answers: Vec<_> = answers.into_iter().map(|answer| (now, answer)).collect();
            decision = PlanDecision::from_list(true);
            decision.add_records(record.items(), Some(&answers));
        }
        terminal::print(&row(&decision, clock.now()))?;
        refused += u32::from(!decision.allowed);
        if decision.allowed && matches!(limit, Limit::Penalty(_)) {
            let report = self::plan(key, limit, Operation::Report { result: Report::Failure })?;
            if let Some((_, why)) = store.apply_now(&report).first_declined() {
                bail!("cannot report the failure: {why}");
            }
        }
        clock.advance(args.every.into());
    }
    Ok(refused)
}

fn plan<'r>(key: Key<'r>, limit: Limit, operation: Operation) -> Result<Plan<'r>, PlanError> {
    let mut plan = Plan::new();
    plan.push(Item::new(key, limit, operation))?;
    Ok(plan)
}

fn row(decision: &PlanDecision, now: Time) -> String {
    let Some(numbers) = decision.headline().and_then(|rule| rule.numbers) else { return String::new() };
    let (answer, style) = if decision.allowed { ("admitted", GREEN) } else { ("refused", RED) };
    let or_dash = |ms: u64| if ms == 0 { "-".to_owned() } else { duration(ms) };
    let wait = match numbers.retry_after {
        RetryAfter::Ms(ms) => or_dash(ms),
        RetryAfter::Never => "never".to_owned(),
    };
    let time = format!("+{}", duration((now - START).us() / 1_000));
    format!(
        "{time:>12}  {style}{answer:<8}{style:#} {:>9} {:>8}  {wait:>12} {:>12}\n",
        numbers.remaining,
        or_dash(numbers.delay_ms),
        duration(numbers.reset_after_ms)
    )
}
