//! `tollgate check`: checks of one request, in memory at given times, in a shared store, or by a server.

mod remote;
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

use crate::cli::client::ClientArgs;
use crate::cli::request_args::RequestArgs;
use crate::cli::store_args::{RecordingStore, StoreArgs};
use crate::failure::Failure;
use report::{Format, Report};
use times::{CheckTime, parse_time, resolve_times};

/// Check one request against the rules, any number of times
///
/// The checks run in an empty memory store, on a clock that is set to the times of --at. The command does not wait, and
/// contacts no server. Each admitted request is charged, so the next check finds less.
///
/// One check now, then ten checks:
///
///   tollgate check --rules rules.yaml action=search tenant=acme api_key=k-1
///   tollgate check --rules rules.yaml --times 10 action=search tenant=acme api_key=k-1
///
/// Checks at the end of a month, one second later, and 1.5 seconds after that:
///
///   tollgate check --rules rules.yaml --at 2026-11-30T22:59:59Z --at +1s --at +2.5s action=export tenant=acme
///
/// Six checks at noon and six checks a minute later, as JSON with one decision per line:
///
///   tollgate check --rules rules.yaml --times 6 --at 2026-11-15T12:00:00Z --at +1min --format json user=u-7
///
/// A check in the Redis or Valkey that your servers share, with their hash key. It is charged like any other request. With
/// another hash key nothing is checked, because the subjects would be others. The store's clock decides, so --at is not
/// accepted:
///
///   openssl rand -hex 32 > key
///   tollgate check --rules rules.yaml --store redis://localhost:6379 --hash-key-file key tenant=acme
///
/// A store on another machine, with TLS, a user and a password that does not appear on the command line:
///
///   export TOLLGATE_HASH_KEY TOLLGATE_STORE_PASSWORD
///   tollgate check --rules rules.yaml --store 'rediss://tollgate@redis.example.com:6379/0?ca=ca.pem' tenant=acme
///
/// The primary `gate` that three sentinels know, and a cluster, for which the addresses of a few servers are enough:
///
///   export TOLLGATE_STORE_PASSWORD TOLLGATE_STORE_SENTINEL_PASSWORD
///   tollgate check --rules rules.yaml --store 'redis+sentinel://tollgate@s1:26379,s2:26379,s3:26379/gate?sentinel_user=tollgate' tenant=acme
///   tollgate check --rules rules.yaml --store redis+cluster://tollgate@c1:6379,c2:6379,c3:6379 tenant=acme
///
/// What a check would answer, without charging anything:
///
///   tollgate check --rules rules.yaml --store redis://localhost:6379 --hash-key-file key --peek tenant=acme
///
/// What a running server would answer, by its own rules and store. The token needs the scope `check`:
///
///   tollgate check --peek --server https://gate.example.com --token-file checkout.token tenant=acme
///
/// A request that can be repeated and is charged once. The same --id gets the same answer for a minute:
///
///   tollgate check --rules rules.yaml --store redis://localhost:6379 --id order-4711 tenant=acme
///
/// If several rules match, the first line shows the most restrictive one: the longest wait if the request is refused, the
/// least remaining if it is admitted. The lines below it show each rule.
///
/// Leases of a `concurrency` limit are not released, and no failure is reported to a `penalty`. The hash key decides which
/// subjects are in a rollout; in memory, an example key is used unless --hash-key-file or TOLLGATE_HASH_KEY is set.
#[derive(clap::Args)]
#[command(
    verbatim_doc_comment,
    after_long_help = "\
Exit codes:
  0  every request was admitted
  1  at least one request was refused
  2  the command line or a file is invalid; all problems of the rules file are printed
  3  the store did not decide: it cannot be reached, rejects the credentials, or reports an error; or a server did not answer
  4  the server declined: a missing token or scope

Environment:
  TOLLGATE_HASH_KEY                 hash key of your servers, 64 hexadecimal digits; --hash-key-file overrides it
  TOLLGATE_SERVER                   server to call if neither --rules nor --server is given
  TOLLGATE_TOKEN                    token for the server; --token-file overrides it
  TOLLGATE_TOKEN_FILE               file with the token; --token-file overrides it
  TOLLGATE_STORE_PASSWORD           password of the store; --store-password-file overrides it
  TOLLGATE_STORE_SENTINEL_PASSWORD  password of the sentinels; --store-sentinel-password-file overrides it"
)]
pub(crate) struct Args {
    #[command(flatten)]
    request: RequestArgs,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    client: ClientArgs,
    /// Number of checks at each time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    times: u32,
    /// Time of the checks: an instant like 2026-12-01T00:00:00Z, or an offset like +1.5s from the first --at (from now if that
    /// is an offset); can be repeated
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    at: Vec<CheckTime>,
    /// Request id: for a minute, checks with the same id get the same answer and are charged once
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// Decide without charging
    #[arg(long, conflicts_with = "id")]
    peek: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    if args.client.is_given() || args.request.rules.is_none() && args.client.has_server_variable()? {
        if args.store.is_set() {
            let hint = "remove one of them: a server has its own store";
            return Err(Failure::new("--server cannot be combined with --store", hint).into());
        }
        return remote::run(args);
    }
    if args.store.is_set() && !args.at.is_empty() {
        let what = "--at cannot be combined with --store: a shared store uses its own clock";
        return Err(Failure::new(what, "remove --at to decide now, or --store to decide in memory").into());
    }
    let (source, rules) = args.request.load_rules("no check was made")?;
    let attributes = args.request.attributes()?;
    match args.store.settings()? {
        None => in_memory(args, rules, &attributes),
        Some(settings) => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(in_redis(args, settings, &source, &rules, &attributes))
        }
    }
}

impl Args {
    fn to_request<'a>(&'a self, attributes: &'a Attributes<'a>) -> Request<'a> {
        let request = self.request.request(attributes);
        self.id.as_deref().map_or(request, |id| request.id(id))
    }
}

fn in_memory(args: &Args, rules: RuleSet, attributes: &Attributes<'_>) -> Result<ExitCode> {
    let times = resolve_times(&args.at, SystemClock.now());
    let mut report = Report::new(args.format, &rules, attributes, &times);
    let clock = ManualClock::default();
    let hasher = args.request.hash_key.get_or_example()?;
    let limiter = LocalLimiter::builder().rules(rules).clock(clock.clone()).hash_key(hasher).build()?;
    for now in times {
        clock.set(now);
        for _ in 0..args.times {
            let request = args.to_request(attributes);
            let decided = if args.peek { limiter.peek(request) } else { limiter.check(request) };
            report.print(&decided.map_err(check_failure)?, now)?;
        }
    }
    report.finish()
}

async fn in_redis(
    args: &Args,
    settings: RedisSettings,
    source: &Source,
    rules: &RuleSet,
    attributes: &Attributes<'_>,
) -> Result<ExitCode> {
    let hasher = args.request.hash_key.required()?;
    let store = RecordingStore::connect(settings).await?;
    store.check_hash_key(&hasher, rules).await?;
    // From the text: request ids include its hash, so they agree with servers that read the same file.
    let limiter = Setup::default().rules_source(source.clone()).hash_key(hasher).build(store)?;
    let mut report = Report::new(args.format, rules, attributes, &[LONGEST]);
    for _ in 0..args.times {
        let request = args.to_request(attributes);
        let decided = if args.peek { limiter.peek(request).await } else { limiter.check(request).await };
        let decision = decided.map_err(check_failure)?;
        report.print(&decision, limiter.store().last()?)?;
    }
    report.finish()
}

/// An instant with the most digits, for the width of the column.
const LONGEST: Time = Time::from_us(1_700_000_000_123_456);

fn check_failure(error: CheckError) -> Failure {
    let hint = match error {
        CheckError::IdReused => "use an id for one request only: the same rules, subjects and cost",
        _ => "`tollgate explain` shows how each rule treats this request",
    };
    Failure::new(error.to_string(), hint)
}
