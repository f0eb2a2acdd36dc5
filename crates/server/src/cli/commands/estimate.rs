//! `tollgate estimate`: what the rules will take of Redis's memory, before they are deployed.

mod json;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::ValueEnum;
use tollgate::core::plan::request_id::HORIZON_DEFAULT;
use tollgate::core::rules::{Mode, Rule, RuleSet};
use tollgate::core::{Algorithm, Limit};
use tollgate::store::redis::{Allocator, Engine, Footprint, KeyBytes, Records};
use tollgate::{Clock, SystemClock};
use tollgate_document::suggest;

use crate::cli::{exit, request_args, terminal};
use crate::failure::Failure;

/// Estimate the memory that rules will take in Redis or Valkey
///
/// For each rule: what a subject takes (key, value, what the server keeps beside them, expiry), and all of them together. A
/// subject is whoever the rule counts: a user, a key, an address. It takes memory from its first request until it has been
/// idle for as long as its limit remembers, so count those of that time, not those of all time.
///
///   tollgate estimate --rules rules.yaml --subjects 1000000
///   tollgate estimate --rules rules.yaml --subjects 50000 --subjects search-per-key=2000000
///   tollgate estimate --rules rules.yaml --subjects 50000 --server valkey --format json
///
/// Logs, leases and reservations grow with use: a second table shows by how much, and the worst case, in which every subject
/// is at its limit.
///
/// The numbers follow from how servers lay out a key; tests compare them with real servers, and they are right to 15 %. Not
/// counted: what an empty server takes, fragmentation, and buffers of clients and replicas.
#[derive(clap::Args)]
#[command(
    verbatim_doc_comment,
    after_long_help = "\
Exit codes:
  0  estimated
  2  the command line is wrong, or a file cannot be read, or the rules file is wrong: its problems are printed"
)]
pub(crate) struct Args {
    /// The rules file; `-` is standard input
    #[arg(long, value_name = "FILE")]
    rules: PathBuf,
    /// How many subjects each rule will have at a time; RULE=N says it of one rule; may be repeated
    #[arg(long, value_name = "N", required = true, value_parser = subjects)]
    subjects: Vec<Subjects>,
    /// Which server
    #[arg(long, value_enum, default_value_t = Server::Redis)]
    server: Server,
    /// The prefix that the URL of the store names, if it names one
    #[arg(long, value_name = "TEXT", default_value = "")]
    prefix: String,
    /// How the estimate is printed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Format {
    /// For people
    Table,
    /// For programs
    Json,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Server {
    /// As in Redis 6.2 and 7
    Redis,
    /// As in Valkey 9, which keeps key and value together
    Valkey,
}

/// How many there are, of one rule or of all.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Subjects {
    rule: Option<String>,
    number: u64,
}

/// Everything there is to tell.
struct Estimate {
    footprint: Footprint,
    rules: Vec<Row>,
    /// Rules that keep nothing, and why.
    without: Vec<(String, &'static str)>,
    keys: u64,
    /// The tables that all keys lie in.
    tables: u64,
    /// The id of a request that met one rule, what each further rule adds to it, and how long it is remembered.
    request_id: u64,
    request_id_further: u64,
    horizon_s: u64,
}

/// One rule.
struct Row {
    rule: String,
    algorithm: Algorithm,
    subjects: u64,
    /// A subject that has just come.
    one: KeyBytes,
    growth: Option<Growth>,
}

/// What grows with use.
struct Growth {
    records: Records,
    /// A subject at its limit.
    full: KeyBytes,
}

/// So many keys are beyond any server, and far from where sums overflow.
const SUBJECTS_MAX: u64 = 1_000_000_000_000;

const NOTHING: KeyBytes = KeyBytes { key: 0, value: 0, overhead: 0, expiry: 0 };

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let (_, rules) = request_args::rules(&args.rules, "there is nothing to estimate")?;
    let estimate = Estimate::new(args, &rules)?;
    terminal::print(&match args.format {
        Format::Table => table::text(&estimate),
        Format::Json => format!("{:#}\n", json::json(&estimate)),
    })?;
    Ok(exit::GOOD)
}

impl Estimate {
    fn new(args: &Args, rules: &RuleSet) -> Result<Estimate, Failure> {
        let engine = match args.server {
            Server::Redis => Engine::Redis,
            Server::Valkey => Engine::Valkey,
        };
        let footprint = Footprint { engine, allocator: Allocator::Jemalloc };
        let (mut rows, mut without) = (Vec::new(), Vec::new());
        named(&args.subjects, rules)?;
        for (place, rule) in rules.rules().iter().enumerate() {
            let id = rule.keyspace.rule().to_owned();
            let limits = limits(rules, place);
            match limits.first() {
                _ if rule.mode == Mode::Off => without.push((id, "its mode is off")),
                None => without.push((id, "it denies without counting")),
                Some(_) => {
                    let subjects = number(&args.subjects, rule)?;
                    rows.push(Row::new(&footprint, args.prefix.len(), rule, &limits, subjects));
                }
            }
        }
        let keys = rows.iter().map(|row| row.subjects).sum();
        let scope = rules.rules().first().map(|rule| &rule.keyspace);
        let id = |rules| scope.map_or(NOTHING, |scope| footprint.request_id(args.prefix.len(), scope, rules));
        Ok(Estimate {
            footprint,
            rules: rows,
            without,
            keys,
            tables: footprint.tables(keys),
            request_id: id(1).total(),
            request_id_further: id(2).value - id(1).value,
            horizon_s: HORIZON_DEFAULT.us() / 1_000_000,
        })
    }

    /// The share of one key in the tables.
    fn share(&self) -> u64 {
        self.tables.div_ceil(self.keys.max(1))
    }

    /// All subjects of all rules, each with what `of` says it takes.
    fn total(&self, of: impl Fn(&Row) -> KeyBytes) -> u64 {
        self.tables + self.rules.iter().map(|row| of(row).total() * row.subjects).sum::<u64>()
    }
}

impl Row {
    fn new(footprint: &Footprint, prefix: usize, rule: &Rule, limits: &[Limit], subjects: u64) -> Row {
        let scope = &rule.keyspace;
        let takes = |limit: &Limit, records: u64| footprint.subject(prefix, scope, limit, records);
        let least = |limit: &Limit| Records::of(limit).map_or(0, |records| records.least);
        let largest = |all: &mut dyn Iterator<Item = KeyBytes>| all.max_by_key(KeyBytes::total);
        // Overrides change numbers: whoever has the most counts.
        let one = largest(&mut limits.iter().map(|limit| takes(limit, least(limit))));
        let grown = limits.iter().filter_map(|limit| Some((limit, Records::of(limit)?)));
        let growth = grown
            .max_by_key(|(_, records)| records.most)
            .map(|(limit, records)| Growth { records, full: takes(limit, records.most) });
        Row {
            rule: scope.rule().to_owned(),
            algorithm: limits.first().map_or(Algorithm::Meter, Limit::algorithm),
            subjects,
            one: one.unwrap_or(NOTHING),
            growth,
        }
    }

    /// A subject at its limit.
    fn most(&self) -> KeyBytes {
        self.growth.as_ref().map_or(self.one, |growth| growth.full)
    }
}

/// The limits that subjects of the rule at this place may have.
fn limits(rules: &RuleSet, place: usize) -> Vec<Limit> {
    let now = SystemClock.now();
    let own = std::iter::once(&rules.rules()[place].limit);
    own.chain(rules.overrides_of(place).iter().map(|change| &change.limit))
        .filter_map(|limit| limit.at(now))
        .collect()
}

/// Every rule that is named must be there.
fn named(subjects: &[Subjects], rules: &RuleSet) -> Result<(), Failure> {
    let names = || rules.rules().iter().map(|rule| rule.keyspace.rule());
    for name in subjects.iter().filter_map(|given| given.rule.as_deref()) {
        if rules.find(name).is_none() {
            let hint = match suggest(name, names()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("the rules are {}", names().collect::<Vec<_>>().join(", ")),
            };
            return Err(Failure::new(format!("no rule has the id `{name}`"), hint));
        }
    }
    Ok(())
}

/// How many subjects this rule will have: what was last said of it, or else of all.
fn number(subjects: &[Subjects], rule: &Rule) -> Result<u64, Failure> {
    let id = rule.keyspace.rule();
    let own = subjects.iter().rev().find(|given| given.rule.as_deref() == Some(id));
    let all = || subjects.iter().rev().find(|given| given.rule.is_none());
    match own.or_else(all) {
        Some(_) if rule.per.parts.is_empty() => Ok(1),
        Some(given) => Ok(given.number),
        None => {
            let what = format!("nothing says how many subjects `{id}` will have");
            Err(Failure::new(what, "--subjects N says it of all rules that are not named"))
        }
    }
}

fn subjects(text: &str) -> Result<Subjects, String> {
    let (rule, number) = match text.rsplit_once('=') {
        Some((rule, number)) => (Some(rule.to_owned()), number),
        None => (None, text),
    };
    let number = number.replace('_', "").parse().ok().filter(|number| (1..=SUBJECTS_MAX).contains(number));
    let number = number.ok_or("write a number from 1 on, like 1_000_000, or RULE=N")?;
    Ok(Subjects { rule, number })
}
