//! `tollgate explain`: what the rules make of one request, and why.

mod json;
mod text;
mod unused;
mod words;
mod written;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::ValueEnum;
use jiff::Timestamp;
use tollgate::core::algorithm::quota::QuotaPeriod;
use tollgate::core::rules::{Explained, Mode, Planned, Request, RuleLimit, RuleSet, Subjects};
use tollgate::core::{Attributes, Limit, PlanError, Subject, SubjectHasher, Time, Token};
use tollgate::rules::load;
use tollgate::rules_file::{Problems, Source};
use tollgate::{Clock, SystemClock};
use written::Written;

use crate::terminal::Failure;
use crate::{exit, input, terminal};

/// Say what the rules make of one request, and why
///
/// Which rules it meets and why the others do not apply, who is counted, which number is in force and where it is
/// written, what the request costs, and what comes of it. Nothing is charged and no store is asked.
///
///   tollgate explain --rules rules.yaml action=search tenant=acme api_key=k-1
///   tollgate explain --rules rules.yaml --at 2026-12-24T18:00:00Z --cost 5 action=export tenant=acme
///
/// Subjects are hashed with a secret key, and the hash decides who is in a rollout. Without --hash-key-file an example key
/// is used: everything else is as on your servers, but the hashes are not, nor is who is in.
#[derive(clap::Args)]
#[command(
    verbatim_doc_comment,
    after_long_help = "\
Exit codes:
  0  explained, whether the request would pass or not
  2  the command line is wrong, or a file cannot be read, or the rules file is wrong: its problems are printed"
)]
pub(crate) struct Args {
    /// The rules file; `-` is standard input
    #[arg(long, value_name = "FILE")]
    rules: PathBuf,
    /// The instant of the request, like 2026-12-01T00:00:00Z; now if it is left out
    #[arg(long, value_name = "RFC3339", value_parser = instant)]
    at: Option<Time>,
    /// What the caller says it costs, for rules that do not say it themselves
    #[arg(long, value_name = "N", default_value_t = 1)]
    cost: u64,
    /// How the explanation is printed
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// A file with the hash key of your servers: 64 hexadecimal digits
    #[arg(long, value_name = "FILE")]
    hash_key_file: Option<PathBuf>,
    /// The id of that key
    #[arg(long, value_name = "ID", default_value_t = 0, requires = "hash_key_file")]
    hash_key_id: u8,
    /// What is known of the request: tenant, user, api_key, ip, method, path, action, plan, anything
    #[arg(value_name = "NAME=VALUE", value_parser = attribute)]
    attributes: Vec<(String, String)>,
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
    explained: Vec<Explained<'a, 'a>>,
    planned: Result<Planned<'a>, PlanError>,
    written: Written,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let source = input::read(&args.rules)?;
    let rules = rules(&source)?;
    let hasher = hasher(args)?;
    let attributes = attributes(&args.attributes)?;
    let now = args.at.unwrap_or_else(|| SystemClock.now());
    // Leases need an owner; nothing is ever taken with this one.
    let request = Request { attributes: &attributes, cost: args.cost, token: Token(1) };
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
        example_key: args.hash_key_file.is_none(),
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
    fn hash(&self, subjects: &Subjects<'_>) -> Subject {
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

fn matches(explained: &Explained<'_, '_>) -> bool {
    explained.unmet.is_empty() && explained.rule.mode != Mode::Off
}

fn rules(source: &Source) -> Result<RuleSet, Failure> {
    let mut problems = Problems::new();
    load(source, &mut problems).ok_or_else(|| {
        terminal::complain(&terminal::problems(&problems, source));
        let hint = "explain reads what servers would read; they refuse a wrong file whole";
        Failure::new(format!("{} has problems, so there is nothing to explain", source.name()), hint)
    })
}

fn hasher(args: &Args) -> Result<SubjectHasher> {
    let Some(path) = &args.hash_key_file else { return Ok(SubjectHasher::new([0; 32])) };
    let source = input::read(path)?;
    SubjectHasher::from_hex(args.hash_key_id, source.text()).with_context(|| format!("in {}", source.name()))
}

fn attributes(given: &[(String, String)]) -> Result<Attributes<'_>, Failure> {
    let mut attributes = Attributes::new();
    for (name, value) in given {
        if attributes.get(name).is_some() {
            return Err(Failure::new(
                format!("the attribute `{name}` is given twice"),
                "a request has one value for each attribute",
            ));
        }
        attributes.set(name, value);
    }
    Ok(attributes)
}

fn instant(text: &str) -> Result<Time, String> {
    let at: Timestamp = text
        .parse()
        .map_err(|_| "write a date, a time and an offset, like 2026-12-01T00:00:00Z".to_owned())?;
    let us = u64::try_from(at.as_microsecond()).ok().filter(|&us| us <= Time::MAX.us());
    us.map(Time::from_us).ok_or_else(|| "times here are from 1970 to 2255".to_owned())
}

fn attribute(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write an attribute's name, `=` and its value, like tenant=acme".to_owned()),
    }
}
