//! `tollgate estimate`: how much memory the rules will need in Redis or Valkey.

mod json;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::ValueEnum;
use tollgate::core::limit::part::Shards;
use tollgate::core::plan::request_id::HORIZON_DEFAULT;
use tollgate::core::rules::{Mode, Rule, RuleSet};
use tollgate::core::{Algorithm, Limit};
use tollgate::store::redis::{Allocator, Engine, Footprint, KeyBytes, Records, holds_max};
use tollgate::{Clock, SystemClock};
use tollgate_document::suggest;

use crate::cli::{exit, request_args, terminal};
use crate::failure::Failure;

/// Estimate the memory that rules need in Redis or Valkey
///
/// For each rule, the command prints the memory of one subject (key, value, overhead of the server, expiry) and of all its
/// subjects. A subject is what the rule counts by, such as a user, an API key or an address. It needs memory from its first
/// request until it has been idle for as long as its limit remembers. So count the subjects of that time, not all subjects.
///
///   tollgate estimate --rules rules.yaml --subjects 1000000
///   tollgate estimate --rules rules.yaml --subjects 50000 --subjects search-per-key=2000000
///   tollgate estimate --rules rules.yaml --subjects 50000 --engine valkey --format json
///
/// Sliding logs, leases and reservations grow with use. A second table shows their growth, and the worst case, in which
/// every subject is at its limit.
///
/// The estimate is computed from the memory layout of the server. Tests compare it with real servers; it is within 15 %. It
/// does not include the memory of an empty server, fragmentation, and the buffers of clients and replicas.
#[derive(clap::Args)]
#[command(
    verbatim_doc_comment,
    after_long_help = "\
Exit codes:
  0  the estimate was printed
  2  the command line or a file is invalid; all problems of the rules file are printed"
)]
pub(crate) struct Args {
    /// Rules file, or folder of rules files; `-` is standard input
    #[arg(long, value_name = "FILE")]
    rules: PathBuf,
    /// Number of subjects of each rule at a time; RULE=N sets the number of one rule; can be repeated
    #[arg(long, value_name = "N", required = true, value_parser = parse_subjects)]
    subjects: Vec<Subjects>,
    /// Server engine whose memory is estimated
    #[arg(long, value_enum, default_value_t = EngineArg::Redis)]
    engine: EngineArg,
    // The old name of --engine, accepted until release 0.2.0.
    #[arg(long, value_enum, hide = true, conflicts_with = "engine")]
    server: Option<EngineArg>,
    /// Prefix of the keys, if the URL of the store has one
    #[arg(long, value_name = "TEXT", default_value = "")]
    prefix: String,
    /// Output format
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
enum EngineArg {
    /// Redis 6.2 or 7
    Redis,
    /// Valkey 9, which stores key and value together
    Valkey,
}

/// The number of subjects of one rule, or of all rules.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Subjects {
    rule: Option<String>,
    number: u64,
}

/// All data that the output contains.
struct Estimate {
    footprint: Footprint,
    rules: Vec<Row>,
    /// Rules without state, each with the reason.
    without_state: Vec<(String, &'static str)>,
    keys: u64,
    /// The size of the hash tables that contain all keys.
    tables: u64,
    /// The size of a request id that was charged by one rule, what each further rule adds, and how long it is kept.
    request_id: u64,
    request_id_further: u64,
    horizon_s: u64,
}

/// One rule.
struct Row {
    rule: String,
    algorithm: Algorithm,
    subjects: u64,
    /// The size of a new subject.
    one: KeyBytes,
    growth: Option<Growth>,
}

/// State that grows with use.
struct Growth {
    records: Records,
    /// The size of a subject at its limit.
    full: KeyBytes,
}

/// More keys than any server can hold. Sums of this size do not overflow.
const SUBJECTS_MAX: u64 = 1_000_000_000_000;

const NOTHING: KeyBytes = KeyBytes { key: 0, value: 0, overhead: 0, expiry: 0 };

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let (_, rules) = request_args::load_rules(&args.rules, "nothing is estimated")?;
    let estimate = Estimate::new(args, &rules)?;
    if args.server.is_some() {
        terminal::warn(
            "--server was renamed to --engine",
            "use the new name; release 0.2.0 does not accept the old one",
        );
    }
    terminal::print(&match args.format {
        Format::Table => table::text(&estimate),
        Format::Json => format!("{:#}\n", json::json(&estimate)),
    })?;
    Ok(exit::SUCCESS)
}

impl Args {
    fn engine(&self) -> EngineArg {
        self.server.unwrap_or(self.engine)
    }
}

impl Estimate {
    fn new(args: &Args, rules: &RuleSet) -> Result<Estimate, Failure> {
        let engine = match args.engine() {
            EngineArg::Redis => Engine::Redis,
            EngineArg::Valkey => Engine::Valkey,
        };
        let footprint = Footprint { engine, allocator: Allocator::Jemalloc };
        let (mut rows, mut without_state) = (Vec::new(), Vec::new());
        check_rule_names(&args.subjects, rules)?;
        for (index, rule) in rules.rules().iter().enumerate() {
            let id = rule.keyspace.rule().to_owned();
            let limits = limits(rules, index);
            match limits.first() {
                _ if rule.mode == Mode::Off => without_state.push((id, "its mode is off")),
                None => without_state.push((id, "its limit is `deny`")),
                Some(_) => {
                    // Each shard of a subject has a key.
                    let keys = rule.shards.map_or(1, Shards::count);
                    let subjects = subject_count(&args.subjects, rule)?.saturating_mul(keys);
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
            without_state,
            keys,
            tables: footprint.tables(keys),
            request_id: id(1).total(),
            request_id_further: id(2).value - id(1).value,
            horizon_s: HORIZON_DEFAULT.us() / 1_000_000,
        })
    }

    /// The share of one key in the size of the tables.
    fn table_share(&self) -> u64 {
        self.tables.div_ceil(self.keys.max(1))
    }

    /// The size of all subjects of all rules, where `size` returns the size of one subject of a rule.
    fn total(&self, size: impl Fn(&Row) -> KeyBytes) -> u64 {
        self.tables + self.rules.iter().map(|row| size(row).total() * row.subjects).sum::<u64>()
    }
}

impl Row {
    fn new(footprint: &Footprint, prefix: usize, rule: &Rule, limits: &[Limit], subjects: u64) -> Row {
        let scope = &rule.keyspace;
        let size = |limit: &Limit, records: u64| footprint.subject(prefix, scope, limit, records);
        let least = |limit: &Limit| Records::of(limit).map_or(0, |records| records.least);
        let largest = |all: &mut dyn Iterator<Item = KeyBytes>| all.max_by_key(KeyBytes::total);
        // Overrides can change the size; the largest one counts.
        let one = largest(&mut limits.iter().map(|limit| match footprint.hold(prefix, scope, limit) {
            // The first request takes a lease.
            Some(hold) if matches!(limit, Limit::Concurrency(_)) => size(limit, least(limit)).with(hold, 1),
            _ => size(limit, least(limit)),
        }));
        let growth = limits.iter().filter_map(|limit| match footprint.hold(prefix, scope, limit) {
            Some(hold) => {
                let (least, most) = (least(limit), holds_max(limit));
                let full = size(limit, most).with(hold, most);
                (most > least)
                    .then_some(Growth { records: Records { least, most, bytes: hold.total() }, full })
            }
            None => {
                let records = Records::of(limit)?;
                Some(Growth { records, full: size(limit, records.most) })
            }
        });
        let growth = growth.max_by_key(|growth| growth.records.most);
        Row {
            rule: scope.rule().to_owned(),
            algorithm: limits.first().map_or(Algorithm::Meter, Limit::algorithm),
            subjects,
            one: one.unwrap_or(NOTHING),
            growth,
        }
    }

    /// The size of a subject at its limit.
    fn size_max(&self) -> KeyBytes {
        self.growth.as_ref().map_or(self.one, |growth| growth.full)
    }
}

/// Returns the limits of a rule and of its overrides.
fn limits(rules: &RuleSet, rule_index: usize) -> Vec<Limit> {
    let now = SystemClock.now();
    let own = std::iter::once(&rules.rules()[rule_index].limit);
    own.chain(rules.overrides_of(rule_index).iter().map(|change| &change.limit))
        .filter_map(|limit| limit.at(now))
        .collect()
}

/// Checks that every named rule exists.
fn check_rule_names(subjects: &[Subjects], rules: &RuleSet) -> Result<(), Failure> {
    let names = || rules.rules().iter().map(|rule| rule.keyspace.rule());
    for name in subjects.iter().filter_map(|given| given.rule.as_deref()) {
        if rules.find(name).is_none() {
            let hint = match suggest(name, names()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("the rules are {}", names().collect::<Vec<_>>().join(", ")),
            };
            return Err(Failure::new(format!("unknown rule `{name}`"), hint));
        }
    }
    Ok(())
}

/// Returns the number of subjects of a rule: the last one for this rule, or else the last one for all rules.
fn subject_count(subjects: &[Subjects], rule: &Rule) -> Result<u64, Failure> {
    let id = rule.keyspace.rule();
    let own = subjects.iter().rev().find(|given| given.rule.as_deref() == Some(id));
    let all = || subjects.iter().rev().find(|given| given.rule.is_none());
    match own.or_else(all) {
        Some(_) if rule.per.parts.is_empty() => Ok(1),
        Some(given) => Ok(given.number),
        None => {
            let what = format!("missing number of subjects for the rule `{id}`");
            Err(Failure::new(what, "--subjects N sets it for all rules that are not named"))
        }
    }
}

fn parse_subjects(text: &str) -> Result<Subjects, String> {
    let (rule, number) = match text.rsplit_once('=') {
        Some((rule, number)) => (Some(rule.to_owned()), number),
        None => (None, text),
    };
    let number = number.replace('_', "").parse().ok().filter(|number| (1..=SUBJECTS_MAX).contains(number));
    let number = number.ok_or("write a positive number, like 1_000_000, or RULE=N")?;
    Ok(Subjects { rule, number })
}
