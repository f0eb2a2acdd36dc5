//! `tollgate simulate`: a log or synthetic traffic against rules.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::ValueEnum;
use tollgate::core::rules::RuleSet;
use tollgate_document::{Source, suggest};

use super::simulate_progress;
use crate::cli::hash_key::HashKeyArgs;
use crate::cli::{exit, request_args, terminal};
use crate::failure::Failure;
use crate::simulate::format::LogFormat;
use crate::simulate::mapping::{self, Assignment, DurationSource, Mapping, TimeSource};
use crate::simulate::requirement::Requirement;
use crate::simulate::synthetic::Synthetic;
use crate::simulate::{NamedRules, Report, Simulation, Traffic};

/// Replay access logs or synthetic traffic against rules, and print what would have been refused
///
/// Nothing is contacted, and nothing waits: the limiter of the library runs in memory on a simulated clock.
///
///   tollgate simulate --rules rules.yaml access.log
///   tollgate simulate --rules new.yaml --against old.yaml access.log.*.gz
///   zcat access.log.2.gz | tollgate simulate --rules rules.yaml -
///   tollgate simulate --rules rules.yaml --require 'refused{rule=login} < 1%' --html report.html access.log
///   tollgate simulate --rules rules.yaml --synthetic rate=500/s,subjects=2000,zipf=1.1,for=1h
///
/// Rules see ip, method, path, host and user from a log. --map sets others:
///
///   --map tenant=x_tenant                          a field, a column or a member of JSON
///   --map 'user=.request.headers.X-User[0]'        a path in JSON
///   --map api_key=query:key                        a parameter of the query
///   --map plan=const:free                          the same for every request
///   --map 'action=path~^/v1/(\w+)'                 the first group of a pattern
///
/// Logs of nginx and Apache have whole seconds; the requests of a second are spread over it in file order. A request starts
/// at its end minus its duration, if the log has durations. Concurrency limits are simulated only then. Clients that retry
/// after a refusal are not modelled.
///
/// The metrics of --require are refused, shadow_refused, newly_refused, newly_allowed, subjects_hit, peak_subjects and
/// undecided. --against must be given for newly_refused and newly_allowed.
#[derive(clap::Args)]
#[command(
    verbatim_doc_comment,
    after_long_help = "\
Exit codes:
  0  every requirement is met
  1  at least one requirement is not met
  2  the command line, a rules file or a log is invalid, or too many lines are unreadable"
)]
pub(crate) struct Args {
    /// Logs, plain or compressed with gzip or zstd; `-` is standard input
    #[arg(required_unless_present = "synthetic", conflicts_with = "synthetic", value_name = "LOG")]
    logs: Vec<PathBuf>,
    /// Rules file, or folder of rules files, that is simulated
    #[arg(long, value_name = "FILE")]
    rules: PathBuf,
    /// Rules file or folder to compare with, such as the rules in force
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
    /// Format of the logs
    #[arg(long, value_enum, default_value_t = LogFormat::Auto, hide_possible_values = false)]
    log_format: LogFormat,
    /// Source of an attribute; can be repeated
    #[arg(long, value_name = "ATTRIBUTE=SOURCE", value_parser = Assignment::parse)]
    map: Vec<Assignment>,
    /// Field with the time of a request, and its format: rfc3339, unix, unix_ms or clf
    #[arg(long, value_name = "FIELD:FORMAT", value_parser = TimeSource::parse)]
    time: Option<TimeSource>,
    /// Field with the cost of a request
    #[arg(long, value_name = "FIELD")]
    cost_from: Option<String>,
    /// Field with the duration of a request, and its unit: s, ms, us or ns
    #[arg(long, value_name = "FIELD:UNIT", value_parser = DurationSource::parse)]
    duration_from: Option<DurationSource>,
    /// File with the same: attributes, time, cost_from and duration_from; the flags take precedence
    #[arg(long, value_name = "FILE")]
    map_file: Option<PathBuf>,
    /// Whether requests of one second are spread over it
    #[arg(long, value_enum, default_value_t = Spread::On)]
    spread: Spread,
    /// Synthetic traffic instead of logs: rate, arrivals (poisson or even), subjects, zipf, for, seed
    #[arg(long, value_name = "SPEC", value_parser = Synthetic::parse)]
    synthetic: Option<Synthetic>,
    /// Condition on the results, like `refused < 0.5%` or `refused{rule=login} < 1%`; can be repeated
    #[arg(long, value_name = "CONDITION", value_parser = Requirement::parse)]
    require: Vec<Requirement>,
    /// Propose one number for each rate rule that refuses more, like `refused < 0.1%`
    #[arg(long, value_name = "CONDITION", value_parser = suggestion)]
    suggest: Option<f64>,
    /// Largest share of unreadable lines
    #[arg(long, value_name = "PERCENT", default_value = "1%", value_parser = percent)]
    unreadable_max: f64,
    /// Show attribute values of subjects in reports instead of their hashes only
    #[arg(long)]
    show_subjects: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// File for a report with charts, one page without references to other files
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    hash_key: HashKeyArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// For programs
    Json,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Spread {
    /// Evenly, in file order
    On,
    /// They keep the whole second
    Off,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let (source, rules) = load(&args.rules)?;
    let old = args.against.as_deref().map(load).transpose()?;
    check_requirements(args, &rules)?;
    let mapping = args.mapping()?;
    let own_key = args.hash_key.get()?;
    let has_hash_key = own_key.is_some();
    let hasher = own_key.unwrap_or_else(crate::cli::hash_key::example);
    let traffic = match &args.synthetic {
        Some(synthetic) => Traffic::Synthetic(synthetic),
        None => {
            let spread = args.spread == Spread::On;
            Traffic::Logs { paths: &args.logs, format: args.log_format, spread }
        }
    };
    let simulation = Simulation {
        new: NamedRules { name: source.name(), rules: &rules },
        suggest: args.suggest.map(|percent_max| (&source, percent_max)),
        old: old.as_ref().map(|(source, rules)| NamedRules { name: source.name(), rules }),
        traffic,
        mapping: &mapping,
        hasher: &hasher,
        has_hash_key,
        shows_subjects: args.show_subjects,
    };
    let results = simulate_progress::run(&simulation)?;
    let report = Report::new(&results, &args.require);
    if let Some(path) = &args.html {
        std::fs::write(path, report.html()).map_err(|error| {
            let what = format!("cannot write {}: {error}", path.display());
            Failure::new(what, "name a file in a folder that you may write to")
        })?;
    }
    terminal::print(&match args.format {
        Format::Text => report.text(),
        Format::Json => report.json(),
    })?;
    report.check_unreadable(args.unreadable_max)?;
    Ok(if report.passed() { exit::SUCCESS } else { exit::NEGATIVE })
}

fn load(path: &Path) -> Result<(Source, RuleSet), Failure> {
    request_args::load_rules(path, "nothing is simulated")
}

impl Args {
    /// The mapping of the file, and then that of the flags.
    fn mapping(&self) -> Result<Mapping, Failure> {
        let mut mapping = self.map_file.as_deref().map(mapping::read_file).transpose()?.unwrap_or_default();
        mapping.attributes.extend(self.map.iter().cloned());
        mapping.time = self.time.clone().or(mapping.time);
        mapping.cost_from = self.cost_from.clone().or(mapping.cost_from);
        mapping.duration_from = self.duration_from.clone().or(mapping.duration_from);
        Ok(mapping)
    }
}

/// Checks that every requirement can be judged.
fn check_requirements(args: &Args, rules: &RuleSet) -> Result<(), Failure> {
    for requirement in &args.require {
        if requirement.needs_two() && args.against.is_none() {
            let hint = "name the rules to compare with: --against old.yaml";
            return Err(Failure::new(format!("`{requirement}` compares two rule sets"), hint));
        }
        if let Some(id) = requirement.rule()
            && rules.find(id).is_none()
        {
            let names = || rules.rules().iter().map(|rule| rule.keyspace.rule());
            let hint = match suggest(id, names()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("the rules are {}", names().collect::<Vec<_>>().join(", ")),
            };
            return Err(Failure::new(format!("unknown rule `{id}` in `{requirement}`"), hint));
        }
    }
    Ok(())
}

fn suggestion(text: &str) -> Result<f64, String> {
    let condition = Requirement::parse(text)?;
    let share = condition.refused_share_max().filter(|_| condition.rule().is_none());
    share.ok_or_else(|| "write a share of all rules, like `refused < 0.1%`".to_owned())
}

fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim().parse().ok();
    number.filter(|share| (0.0..=100.0).contains(share)).ok_or_else(|| "write a share like 1%".to_owned())
}
