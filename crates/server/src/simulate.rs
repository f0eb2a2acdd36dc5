//! The simulator: replays logs or synthetic traffic against rules, and compares two rule sets.
//!
//! Data flows one way: a log is read in blocks (`input`), its lines become fields (`format`), fields become requests
//! (`mapping`, `records`), requests are put into the order of their start (`order`), each rule set decides them with the
//! library's own limiter on a simulated clock (`replay`), and the counts become reports (`results`, `report`). Reading and
//! each rule set have a thread. The result does not depend on their timing.

mod replay;
pub(crate) mod report;
pub(crate) mod requirement;
mod results;
mod rule_set;
mod suggest;
mod traffic;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Instant;

use anyhow::{Result, anyhow};
use tollgate::core::SubjectHasher;
use tollgate::core::rules::RuleSet;
use tollgate_document::Source;

use crate::failure::Failure;
use replay::{Replay, Tally};
pub(crate) use results::Results;
use rule_set::{CaptureKey, InputKind};
pub(crate) use traffic::{captured_value, format, mapping, synthetic};

use format::LogFormat;
use mapping::Mapping;
use synthetic::Synthetic;
use traffic::log::{Log, LogSettings, LogSummary};
use traffic::records::Batch;
use traffic::{input, merge};

/// Batches that wait between two threads.
const QUEUE: usize = 4;
/// Logs that are read at the same time. Each takes some megabytes.
const LOGS_MAX: usize = 256;

/// What is simulated.
pub(crate) struct Simulation<'s> {
    pub(crate) new: NamedRules<'s>,
    /// The text of the new rules, if numbers are suggested, and the largest share of refusals in percent.
    pub(crate) suggest: Option<(&'s Source, f64)>,
    pub(crate) old: Option<NamedRules<'s>>,
    pub(crate) traffic: Traffic<'s>,
    pub(crate) mapping: &'s Mapping,
    pub(crate) hasher: &'s SubjectHasher,
    /// Whether the hash key is that of servers, and not the example.
    pub(crate) has_hash_key: bool,
    /// Whether reports show attribute values of subjects.
    pub(crate) shows_subjects: bool,
}

/// Rules and the name of their file.
#[derive(Clone, Copy)]
pub(crate) struct NamedRules<'s> {
    pub(crate) name: &'s str,
    pub(crate) rules: &'s RuleSet,
}

/// Where the requests come from.
pub(crate) enum Traffic<'s> {
    Logs {
        paths: &'s [PathBuf],
        format: LogFormat,
        /// Whether the requests of a second are spread over it.
        spread: bool,
    },
    Synthetic(&'s Synthetic),
}

/// How far a simulation is.
#[derive(Clone, Default)]
pub(crate) struct Progress {
    /// Bytes of files that were read, or synthetic requests that were made.
    pub(crate) done: Arc<AtomicU64>,
}

/// Returns the amount of work, in the unit of [`Progress`], if it is known.
pub(crate) fn amount(traffic: &Traffic<'_>) -> Option<u64> {
    match traffic {
        Traffic::Logs { paths, .. } => input::total_bytes(paths),
        Traffic::Synthetic(synthetic) => Some(synthetic.requests()),
    }
}

/// Simulates.
pub(crate) fn run(simulation: &Simulation<'_>, progress: &Progress) -> Result<Results> {
    let began = Instant::now();
    let Simulation { new, old, mapping, hasher, .. } = *simulation;
    let sets: Vec<&RuleSet> = std::iter::once(new).chain(old).map(|named| named.rules).collect();
    let names: Arc<[String]> = rule_set::attribute_names(sets.iter().copied()).into();
    let logs = open(simulation, &names, progress)?;
    let input = input_kind(simulation, &logs)?;
    let (new_rules, mut not_simulated) = rule_set::simulated(new.rules, input)?;
    let old_rules = old.map(|old| rule_set::simulated(old.rules, input)).transpose()?;
    let replay = |rules: &RuleSet| Replay::new(rules, hasher, &names, simulation.shows_subjects);
    let new_replay = replay(&new_rules)?;
    let new_replay = if simulation.suggest.is_some() { new_replay.with_traces() } else { new_replay };
    let old_replay = old_rules.as_ref().map(|(rules, _)| replay(rules)).transpose()?;
    let source = |emit: &mut dyn FnMut(Batch) -> bool| match &simulation.traffic {
        Traffic::Logs { .. } => merge::read_all(logs, emit),
        Traffic::Synthetic(synthetic) => {
            synthetic.generate(&sets, &names, mapping, |batch| {
                progress.done.fetch_add(batch.len() as u64, std::sync::atomic::Ordering::Relaxed);
                emit(batch)
            });
            Ok(Vec::new())
        }
    };
    let (mut new_tally, old_tally, inputs) = replay_all(new_replay, old_replay, source)?;
    if let Some((_, of_old)) = old_rules {
        not_simulated.extend(of_old);
        not_simulated.sort();
        not_simulated.dedup();
    }
    let suggestions = simulation.suggest.map(|(source, percent_max)| {
        suggest::suggest(source, &new_rules, new_tally.take_traces(), percent_max)
    });
    let old_results = old.zip(old_tally).map(|(old, tally)| (old.name.to_owned(), tally));
    let mut results = Results::new((new.name.to_owned(), new_tally), old_results);
    results.not_simulated = not_simulated;
    results.inputs = inputs;
    results.suggestions = suggestions;
    results.synthetic = match simulation.traffic {
        Traffic::Synthetic(synthetic) => Some(synthetic.text().to_owned()),
        Traffic::Logs { .. } => None,
    };
    results.took = began.elapsed();
    Ok(results)
}

fn open(
    simulation: &Simulation<'_>,
    names: &Arc<[String]>,
    progress: &Progress,
) -> Result<Vec<(Log, LogFormat)>> {
    let Traffic::Logs { paths, format, spread } = &simulation.traffic else { return Ok(Vec::new()) };
    if paths.len() > LOGS_MAX {
        let hint = "concatenate logs that follow each other: `cat access.log.*.gz | tollgate simulate ... -`";
        return Err(Failure::new(format!("{} logs exceed the maximum {LOGS_MAX}", paths.len()), hint).into());
    }
    let settings = LogSettings { format: *format, mapping: simulation.mapping, names, spread: *spread };
    paths.iter().map(|path| Ok(Log::open(path, &settings, &progress.done)?)).collect()
}

fn input_kind<'s>(simulation: &Simulation<'s>, logs: &[(Log, LogFormat)]) -> Result<InputKind<'s>, Failure> {
    let captures = logs.iter().filter(|(_, format)| *format == LogFormat::Capture).count();
    if captures > 0 && captures < logs.len() {
        let hint = "simulate captures and logs one after the other: a capture has hashes instead of values";
        return Err(Failure::new("captures and logs are mixed", hint));
    }
    let fingerprint = simulation.hasher.fingerprint();
    let is_ours = || logs.iter().all(|(log, _)| log.captured_with() == Some(fingerprint.as_str()));
    let capture = (captures > 0).then(|| match simulation.has_hash_key && is_ours() {
        true => CaptureKey::Known(simulation.hasher),
        false => CaptureKey::Unknown,
    });
    Ok(InputKind { has_durations: logs.iter().any(|(log, _)| log.has_durations()), capture })
}

/// Feeds every batch to each rule set, each on a thread.
fn replay_all(
    new: Replay,
    old: Option<Replay>,
    source: impl FnOnce(&mut dyn FnMut(Batch) -> bool) -> Result<Vec<LogSummary>>,
) -> Result<(Tally, Option<Tally>, Vec<LogSummary>)> {
    thread::scope(|scope| {
        let start = |replay: Replay| {
            let (sender, receiver) = sync_channel(QUEUE);
            (sender, scope.spawn(move || consume(replay, &receiver)))
        };
        let (to_new, new) = start(new);
        let (to_old, old) = old.map(start).unzip();
        let read = source(&mut |batch| {
            let batch = Arc::new(batch);
            send(&to_new, &batch) && to_old.as_ref().is_none_or(|to_old| send(to_old, &batch))
        });
        drop((to_new, to_old));
        let died = |_| anyhow!("a thread of the simulation has died; this is a defect");
        let new = new.join().map_err(died)?;
        let old = old.map(|old| old.join().map_err(died)).transpose()?;
        Ok((new, old, read?))
    })
}

fn send(to: &SyncSender<Arc<Batch>>, batch: &Arc<Batch>) -> bool {
    to.send(Arc::clone(batch)).is_ok()
}

fn consume(mut replay: Replay, batches: &Receiver<Arc<Batch>>) -> Tally {
    for batch in batches {
        replay.apply(&batch);
    }
    replay.finish()
}

/// The results with the verdicts on the requirements.
pub(crate) struct Report<'r> {
    results: &'r Results,
    verdicts: Vec<requirement::Verdict>,
}

impl<'r> Report<'r> {
    pub(crate) fn new(results: &'r Results, requirements: &[requirement::Requirement]) -> Report<'r> {
        Report {
            results,
            verdicts: requirements.iter().map(|requirement| requirement.judge(results)).collect(),
        }
    }

    /// Whether every requirement is met.
    pub(crate) fn passed(&self) -> bool {
        self.verdicts.iter().all(|verdict| verdict.passed)
    }

    /// The summary for a terminal.
    pub(crate) fn text(&self) -> String {
        report::text::text(self.results, &self.verdicts)
    }

    /// The results for programs.
    pub(crate) fn json(&self) -> String {
        format!("{:#}\n", report::json::json(self.results, &self.verdicts))
    }

    /// A page for browsers, without references to other files.
    pub(crate) fn html(&self) -> String {
        report::html::html(self.results, &self.verdicts)
    }

    /// Fails if more than this share of the lines, in percent, is unreadable.
    pub(crate) fn check_unreadable(&self, percent_max: f64) -> Result<(), Failure> {
        let (unreadable, lines) = self.results.unreadable();
        if unreadable as f64 * 100.0 <= percent_max * lines as f64 {
            return Ok(());
        }
        let reasons = self.results.unreadable_reasons();
        let reasons: Vec<_> =
            reasons.iter().take(3).map(|(reason, count)| format!("{reason} ({count})")).collect();
        let share = report::share(unreadable, lines);
        let what = format!("{unreadable} of {lines} lines are unreadable ({share}): {}", reasons.join(", "));
        let hint = "check --log-format and --map; --unreadable-max accepts a larger share";
        Err(Failure::new(what, hint))
    }
}

/// What was found in bytes that are read as a log.
pub(crate) struct ReadBytes {
    pub(crate) lines: u64,
    pub(crate) requests: u64,
    pub(crate) other: u64,
    pub(crate) unreadable: u64,
    pub(crate) records: u64,
}

/// Reads bytes as a log, with the default mapping. For fuzz targets.
pub(crate) fn read_bytes(format: LogFormat, bytes: &[u8]) -> Result<ReadBytes, Failure> {
    let names: Arc<[String]> = ["api_key", "host", "ip", "method", "path", "user"].map(str::to_owned).into();
    let source = Box::new(std::io::Cursor::new(bytes.to_vec()));
    let input = input::Input::new("bytes".to_owned(), source);
    let input = input.map_err(|error| Failure::new(error.to_string(), "these bytes are no log"))?;
    let settings = LogSettings { format, mapping: &Mapping::default(), names: &names, spread: true };
    let (log, format) = Log::of(input, &settings)?;
    let mut records = 0;
    let summary = log.read(format, |batch| {
        records += batch.len() as u64;
        for index in 0..batch.len() {
            let attributes = batch.record(index).attributes(&names);
            assert!(attributes.iter().all(|(name, _)| names.iter().any(|known| known == name)));
        }
        true
    });
    let traffic::log::LineCounts { lines, requests, other, unreadable, .. } = summary.counts;
    Ok(ReadBytes { lines, requests, other, unreadable, records })
}
