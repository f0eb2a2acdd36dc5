//! `tollgate check`: real checks of one request, in memory at the times given, or in the store that servers share.

mod report;
mod times;

use std::process::ExitCode;

use anyhow::Result;
use tollgate::core::rules::{Request, RuleSet};
use tollgate::core::{Attributes, Time};
use tollgate::engine::Setup;
use tollgate::limiter::CheckError;
use tollgate::store::redis::RedisSettings;
use tollgate::{Clock, LocalLimiter, ManualClock, SystemClock};
use tollgate_document::Source;

use crate::cli::request_args::Asked;
use crate::cli::store_args::{SharedStore, Watched};
use crate::failure::Failure;
use report::{Format, Report};
use times::{At, at, times};

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
/// In the Redis or Valkey that your servers share, with their hash key. This is charged like any request of theirs, and
/// decided by the clock of the store, so there is no --at:
///
///   openssl rand -hex 32 > key
///   tollgate check --rules rules.yaml --store redis://localhost:6379 --hash-key-file key tenant=acme
///
/// The store of another machine, with TLS, a user and a password that no command line shows:
///
///   export TOLLGATE_HASH_KEY TOLLGATE_STORE_PASSWORD
///   tollgate check --rules rules.yaml --store 'rediss://tollgate@redis.example.com:6379/0?ca=ca.pem' tenant=acme
///
/// Wherever three sentinels say that the primary `gate` is, and spread over a cluster, of which a few servers are enough to
/// find the others:
///
///   export TOLLGATE_STORE_PASSWORD TOLLGATE_STORE_SENTINEL_PASSWORD
///   tollgate check --rules rules.yaml --store 'redis+sentinel://tollgate@s1:26379,s2:26379,s3:26379/gate?sentinel_user=tollgate' tenant=acme
///   tollgate check --rules rules.yaml --store redis+cluster://tollgate@c1:6379,c2:6379,c3:6379 tenant=acme
///
/// A request that may be sent twice and is charged once: the same answer for the same --id, for a minute.
///
///   tollgate check --rules rules.yaml --store redis://localhost:6379 --id order-4711 tenant=acme
///
/// If several rules apply, the first line tells the one that matters most: of a refusal the one with the longest wait, of
/// an admission the one with the least left. The lines below it tell what each rule says.
///
/// Nobody gives a lease of `concurrency` back, and no failure is reported to a `penalty`. Who is in a rollout depends on the
/// hash key: in memory, without --hash-key-file and TOLLGATE_HASH_KEY, an example key is used.
#[derive(clap::Args)]
#[command(
    verbatim_doc_comment,
    after_long_help = "\
Exit codes:
  0  every check was admitted
  1  at least one was refused
  2  the command line is wrong, or a file cannot be read, or the rules file is wrong: its problems are printed
  3  the store did not decide: it cannot be reached, does not let us in, or does not do what it is asked

Environment:
  TOLLGATE_HASH_KEY                 the hash key of your servers, 64 hexadecimal digits; --hash-key-file beats it
  TOLLGATE_STORE_PASSWORD           the password of the store; --store-password-file beats it
  TOLLGATE_STORE_SENTINEL_PASSWORD  the password of its sentinels; --store-sentinel-password-file beats it"
)]
pub(crate) struct Args {
    #[command(flatten)]
    asked: Asked,
    #[command(flatten)]
    store: SharedStore,
    /// How many checks in a row, at each time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    times: u32,
    /// When: an instant like 2026-12-01T00:00:00Z, or so long after the first --at (or after now) like +1.5s; may be repeated
    #[arg(long, value_name = "TIME", value_parser = at)]
    at: Vec<At>,
    /// The request's id: under the same one it is charged once, and gets the same answer, for a minute
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// How decisions are printed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    if args.store.is_named() && !args.at.is_empty() {
        let what = "--at sets the clock of the store in memory; a shared store has its own";
        return Err(Failure::new(what, "leave out --at to decide now, or --store to decide in memory").into());
    }
    let (source, rules) = args.asked.rules("there is nothing to check")?;
    let attributes = args.asked.attributes()?;
    match args.store.settings()? {
        None => in_memory(args, rules, &attributes),
        Some(settings) => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(in_redis(args, settings, &source, &rules, &attributes))
        }
    }
}

impl Args {
    fn request<'a>(&'a self, attributes: &'a Attributes<'a>) -> Request<'a> {
        let request = Request::new(attributes).cost(self.asked.cost);
        self.id.as_deref().map_or(request, |id| request.id(id))
    }
}

fn in_memory(args: &Args, rules: RuleSet, attributes: &Attributes<'_>) -> Result<ExitCode> {
    let times = times(&args.at, SystemClock.now());
    let mut report = Report::new(args.format, &rules, attributes, &times);
    let clock = ManualClock::default();
    let hasher = args.asked.hash_key.given_or_example()?;
    let limiter = LocalLimiter::builder().rules(rules).clock(clock.clone()).hash_key(hasher).build()?;
    for now in times {
        clock.set(now);
        for _ in 0..args.times {
            report.tell(&limiter.check(args.request(attributes)).map_err(undecided)?, now)?;
        }
    }
    report.end()
}

async fn in_redis(
    args: &Args,
    settings: RedisSettings,
    source: &Source,
    rules: &RuleSet,
    attributes: &Attributes<'_>,
) -> Result<ExitCode> {
    let hasher = args.asked.hash_key.shared()?;
    let store = Watched::connect(settings).await?;
    // From the text, of which ids of requests know the hash: servers that have read the same file agree with us.
    let limiter = Setup::default().rules_yaml(source.text()).hash_key(hasher).build(store)?;
    let mut report = Report::new(args.format, rules, attributes, &[LONGEST]);
    for _ in 0..args.times {
        let decision = limiter.check(args.request(attributes)).await.map_err(undecided)?;
        report.tell(&decision, limiter.store().last()?)?;
    }
    report.end()
}

/// An instant of which all digits are printed.
const LONGEST: Time = Time::from_us(1_700_000_000_123_456);

fn undecided(error: CheckError) -> Failure {
    let hint = match error {
        CheckError::IdReused => "an id stands for one request: same rules, same subjects, same cost",
        _ => "`tollgate explain` shows what each rule makes of this request",
    };
    Failure::new(error.to_string(), hint)
}
