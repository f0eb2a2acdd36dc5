//! `tollgate check`: real checks of one request, in memory, at the times given.

use std::process::ExitCode;

use anyhow::Result;
use clap::ValueEnum;
use serde_json::json;
use tollgate::core::decision::{Numbers, RetryAfter, Source};
use tollgate::core::rules::{Mode, Rollout, RuleSet};
use tollgate::core::{Attributes, Span, Time};
use tollgate::{Clock, Decision, Limiter, ManualClock, MemoryStore, Request, SystemClock, shorthand};

use crate::request::{Asked, instant};
use crate::terminal::{DIM, Failure, GREEN, RED, YELLOW, length};
use crate::{exit, terminal};

/// Check one request against the rules, as often and at whatever times you like
///
/// The checks are those of the library, on an empty store in memory and a clock that is set to the times given: nothing is
/// waited for, and no server is asked. Each admission is charged, so the next check finds less.
///
/// One check now, then ten in a row:
///
///   tollgate check --rules rules.yaml action=search tenant=acme api_key=k-1
///   tollgate check --rules rules.yaml --times 10 action=search tenant=acme api_key=k-1
///
/// What a tenant finds at the turn of the month, and 1.5 seconds after that:
///
///   tollgate check --rules rules.yaml --at 2026-11-30T22:59:59Z --at +1s --at +2.5s action=export tenant=acme
///
/// Six at noon and six a minute later, for a program; each line of the output is one decision:
///
///   tollgate check --rules rules.yaml --times 6 --at 2026-11-15T12:00:00Z --at +1min --format json user=u-7
///
/// If several rules apply, the first line tells the one that matters most: of a refusal the one with the longest wait, of
/// an admission the one with the least left. The lines below it tell what each rule says.
///
/// Nobody gives a lease of `concurrency` back, and no failure is reported to a `penalty`. Who is in a rollout depends on the
/// hash key: without --hash-key-file an example key is used.
#[derive(clap::Args)]
#[command(
    verbatim_doc_comment,
    after_long_help = "\
Exit codes:
  0  every check was admitted
  1  at least one was refused
  2  the command line is wrong, or a file cannot be read, or the rules file is wrong: its problems are printed"
)]
pub(crate) struct Args {
    #[command(flatten)]
    asked: Asked,
    /// How many checks in a row, at each time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    times: u32,
    /// When: an instant like 2026-12-01T00:00:00Z, or so long after the first --at (or after now) like +1.5s; may be repeated
    #[arg(long, value_name = "TIME", value_parser = at)]
    at: Vec<At>,
    /// How decisions are printed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Format {
    /// For people
    Table,
    /// For programs: one object a line, one line a check
    Json,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum At {
    Instant(Time),
    After(Span),
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let (_, rules) = args.asked.rules("there is nothing to check")?;
    let attributes = args.asked.attributes()?;
    let times = times(&args.at, SystemClock.now());
    let table = Table::new(&rules, &attributes, &times);
    let clock = ManualClock::default();
    let store = MemoryStore::with_clock(&clock);
    let limiter = Limiter::builder().rules(rules).store(store).hash_key(args.asked.hasher()?).build()?;
    let request = Request::new(&attributes).cost(args.asked.cost);
    let (mut admitted, mut refused, mut outright) = (0_u64, 0_u64, None);
    if args.format == Format::Table {
        terminal::print(&table.head())?;
    }
    for now in times {
        clock.set(now);
        for _ in 0..args.times {
            let decision = limiter.check_now(request).map_err(|error| {
                Failure::new(
                    error.to_string(),
                    "`tollgate explain` shows what each rule makes of this request",
                )
            })?;
            *(if decision.allowed { &mut admitted } else { &mut refused }) += 1;
            if decision.source == Source::Rule {
                outright = decision.headline().map(|rule| rule.id().to_owned());
            }
            terminal::print(&match args.format {
                Format::Table => table.rows(&decision, now),
                Format::Json => line(&decision, now),
            })?;
        }
    }
    if args.format == Format::Table {
        terminal::print(&format!("\n{admitted} admitted, {refused} refused\n"))?;
        if let Some(rule) = outright {
            let why = "nobody to count is there, or it denies; `tollgate explain` says which";
            terminal::print(&format!("{YELLOW}note:{YELLOW:#} {rule} refuses without counting: {why}\n"))?;
        }
    }
    Ok(if refused == 0 { exit::GOOD } else { exit::BAD })
}

/// Offsets count from the first time if that is an instant, or else from now.
fn times(given: &[At], now: Time) -> Vec<Time> {
    let start = match given.first() {
        Some(At::Instant(first)) => *first,
        _ => now,
    };
    let times = given.iter().map(|at| match *at {
        At::Instant(time) => time,
        At::After(offset) => start.plus(offset),
    });
    if given.is_empty() { vec![now] } else { times.collect() }
}

fn line(decision: &Decision, now: Time) -> String {
    let mut told = decision.to_json();
    told["at"] = json!(terminal::instant(now));
    format!("{told}\n")
}

/// How wide the columns are whose texts differ in length.
struct Table {
    time: usize,
    rule: usize,
}

impl Table {
    fn new(rules: &RuleSet, attributes: &Attributes<'_>, times: &[Time]) -> Table {
        let time = times.iter().map(|&time| terminal::instant(time).len()).max().unwrap_or(0);
        let matching = rules.matching(attributes);
        let several = matching.len() > 1;
        let names = matching.iter().map(|&place| {
            let rule = &rules.rules()[place as usize];
            let blocking = rule.mode == Mode::Enforce && rule.rollout == Rollout::ALL;
            if several { each(rule.scope.rule(), blocking).len() } else { rule.scope.rule().len() }
        });
        let rule = names.chain([NO_RULE.len()]).max().unwrap_or(0);
        Table { time, rule }
    }

    fn head(&self) -> String {
        let Table { time, rule } = *self;
        format!(
            "{:<time$}  {:<8}  {:<rule$}  {:>9} {:>8}  {:>12} {:>15}\n",
            "time", "answer", "rule", "remaining", "delay", "retry after", "reset in"
        )
    }

    /// The headline, and every rule if there are several.
    fn rows(&self, decision: &Decision, now: Time) -> String {
        let (answer, style) = if decision.allowed { ("admitted", GREEN) } else { ("refused", RED) };
        let name = match (decision.headline(), decision.source) {
            (Some(rule), _) => rule.id(),
            (None, Source::List) if decision.allowed => "(bypass list)",
            (None, Source::List) => "(deny list)",
            (None, _) => NO_RULE,
        };
        let time = terminal::instant(now);
        let numbers = decision.headline().and_then(|rule| rule.numbers);
        let mut rows = self.row(&time, &format!("{style}{answer:<8}{style:#}"), name, numbers);
        let rules: Vec<_> = decision.rules().collect();
        for rule in rules.iter().filter(|_| rules.len() > 1) {
            let answer = if rule.allowed { "admits" } else { "refuses" };
            let name = each(rule.id(), rule.blocking);
            rows += &self.row("", &format!("{DIM}{answer:<8}{DIM:#}"), &name, rule.numbers);
        }
        rows
    }

    fn row(&self, time: &str, answer: &str, name: &str, numbers: Option<Numbers>) -> String {
        let Table { time: time_width, rule } = *self;
        let or_none = |ms: u64| if ms == 0 { "-".to_owned() } else { length(ms) };
        let cells = match numbers {
            None => ["-", "-", "-", "-"].map(str::to_owned),
            Some(numbers) => [
                numbers.remaining.to_string(),
                or_none(numbers.delay_ms),
                match numbers.retry_after {
                    RetryAfter::Ms(ms) => or_none(ms),
                    RetryAfter::Never => "never".to_owned(),
                },
                length(numbers.reset_after_ms),
            ],
        };
        let [remaining, delay, retry, reset] = cells;
        format!(
            "{time:<time_width$}  {answer}  {name:<rule$}  {remaining:>9} {delay:>8}  {retry:>12} {reset:>15}\n"
        )
    }
}

const NO_RULE: &str = "(no rule applies)";

/// A rule's name below a headline.
fn each(name: &str, blocking: bool) -> String {
    if blocking { format!("  {name}") } else { format!("  {name} (shadow)") }
}

fn at(text: &str) -> Result<At, String> {
    match text.strip_prefix('+') {
        Some(offset) => after(offset).map(At::After).ok_or_else(|| {
            "write a plus, a number and one of us, ms, s, min, h, d, w, like +1.5s".to_owned()
        }),
        None => instant(text).map(At::Instant),
    }
}

/// `1.5s`. A part of a microsecond is no time.
fn after(text: &str) -> Option<Span> {
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(unit_at);
    let Some((whole, decimals)) = number.split_once('.') else { return shorthand::span(text).ok() };
    let only_digits = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !only_digits(whole) || !only_digits(decimals) || decimals.len() > 9 {
        return None;
    }
    let whole = shorthand::span(&format!("{whole}{unit}")).ok()?;
    let unit_us = u128::from(shorthand::span(&format!("1{unit}")).ok()?.us());
    let scale = 10_u128.pow(decimals.len() as u32);
    let part_us = decimals.parse::<u128>().ok()? * unit_us;
    let part = Span::from_us(u64::try_from(part_us / scale).ok()?);
    part_us.is_multiple_of(scale).then(|| (Time::ZERO.plus(whole).plus(part)) - Time::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_lengths_of_time_with_a_plus() {
        for (text, us) in [
            ("+0s", Some(0)),
            ("+1.5s", Some(1_500_000)),
            ("+90min", Some(5_400_000_000)),
            ("+0.25ms", Some(250)),
            ("+1.50h", Some(5_400_000_000)),
            ("+0.5us", None),
            ("+1.s", None),
            ("+.5s", None),
            ("+1.-5s", None),
            ("+1.5", None),
            ("+1.5fortnights", None),
            ("+s5", None),
            ("+", None),
        ] {
            assert_eq!(at(text).ok(), us.map(|us| At::After(Span::from_us(us))), "{text}");
        }
    }

    #[test]
    fn offsets_count_from_the_first_instant_or_from_now() {
        let [now, noon] = [1_000, 2_000].map(Time::from_us);
        let after = |us| At::After(Span::from_us(us));
        assert_eq!(times(&[], now), [now]);
        assert_eq!(times(&[after(5), after(7)], now), [1_005, 1_007].map(Time::from_us));
        let given = [At::Instant(noon), after(5), At::Instant(now)];
        assert_eq!(times(&given, now), [2_000, 2_005, 1_000].map(Time::from_us));
    }
}
