//! `tollgate explain`: what the rules make of one request, and why.

mod json;
mod text;
mod unused;
mod words;
mod written;

use std::process::ExitCode;

use anyhow::Result;
use clap::ValueEnum;
use tollgate::core::algorithm::quota::QuotaPeriod;
use tollgate::core::rules::{Mode, Planned, Request, RuleLimit, RuleSet, RuleTrace, SubjectParts};
use tollgate::core::{Limit, PlanError, Subject, SubjectHasher, Time, Token};
use tollgate::{Clock, SystemClock};
use written::Written;

use crate::cli::request_args::{Asked, instant};
use crate::cli::{exit, hash_key, terminal};

/// Say what the rules make of one request, and why
///
/// Which rules it meets and why the others do not apply, who is counted, which number is in force and where it is
/// written, what the request costs, and what comes of it. Nothing is charged and no store is asked.
///
///   tollgate explain --rules rules.yaml action=search tenant=acme api_key=k-1
///   tollgate explain --rules rules.yaml --at 2026-12-24T18:00:00Z --cost 5 action=export tenant=acme
///
/// Subjects are hashed with a secret key, and the hash decides who is in a rollout. Without --hash-key-file and
/// TOLLGATE_HASH_KEY an example key is used: everything else is as on your servers, but the hashes are not, nor is who
/// is in.
#[derive(clap::Args)]
#[command(
    verbatim_doc_comment,
    after_long_help = "\
Exit codes:
  0  explained, whether the request would pass or not
  2  the command line is wrong, or a file cannot be read, or the rules file is wrong: its problems are printed"
)]
pub(crate) struct Args {
    #[command(flatten)]
    asked: Asked,
    /// The instant of the request, like 2026-12-01T00:00:00Z; now if it is left out
    #[arg(long, value_name = "RFC3339", value_parser = instant)]
    at: Option<Time>,
    /// How the explanation is printed
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// For programs
    Json,
}

/// Everything there is to tell.
struct Explanation<'a> {
    rules: &'a RuleSet,
    request: Request<'a>,
    now: Time,
    hasher: &'a SubjectHasher,
    /// Nobody's key: no server has these hashes.
    example_key: bool,
    /// Every rule, in the order of the file; none if the request is decided before rules are looked at.
    explained: Vec<RuleTrace<'a, 'a>>,
    planned: Result<Planned<'a>, PlanError>,
    written: Written,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let (source, rules) = args.asked.rules("there is nothing to explain")?;
    let given = args.asked.hash_key.given()?;
    let example_key = given.is_none();
    let hasher = given.unwrap_or_else(hash_key::example);
    let attributes = args.asked.attributes()?;
    let now = args.at.unwrap_or_else(|| SystemClock.now());
    // Leases need an owner; nothing is ever taken with this one.
    let request = Request { attributes: &attributes, cost: args.asked.cost, token: Token(1), id: None };
    let planned = rules.plan(&request, &hasher.clone().into(), now);
    let explained = match planned {
        Ok(Planned::Denied(_) | Planned::Bypassed(_)) => Vec::new(),
        _ => rules.explain(&request, &hasher, now),
    };
    let explanation = Explanation {
        rules: &rules,
        request,
        now,
        hasher: &hasher,
        example_key,
        explained,
        planned,
        written: Written::new(&source, &rules),
    };
    terminal::print(&match args.format {
        Format::Text => text::text(&explanation),
        Format::Json => format!("{:#}\n", json::json(&explanation)),
    })?;
    Ok(exit::GOOD)
}

impl Explanation<'_> {
    fn hash(&self, subjects: &SubjectParts<'_>) -> Subject {
        subjects.hash(self.hasher)
    }

    /// The calendar period in which a quota counts now.
    fn period(&self, limit: &RuleLimit) -> Option<(Time, Time)> {
        match limit.at(self.now)? {
            Limit::Quota(quota) => match quota.period() {
                QuotaPeriod::Calendar(periods) => periods.containing(self.now),
                QuotaPeriod::Rolling(_) => None,
            },
            _ => None,
        }
    }
}

fn matches(explained: &RuleTrace<'_, '_>) -> bool {
    explained.unmet.is_empty() && explained.rule.mode != Mode::Off
}
