//! `tollgate test`: requests at given times against rules, compared with what a file expects.

mod file;
mod report;
mod run;
mod shape;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::ValueEnum;
use tollgate_document::{Problems, Source, json_schema};

use crate::cli::hash_key::HashKeyArgs;
use crate::cli::{exit, terminal};
use crate::failure::Failure;
use crate::files::{self, STDIN};
use file::RulesFiles;
use run::{TestResult, run_test};

pub(crate) use shape::file_shape;

/// Run tests of rules
///
/// A test file names a rules file, describes requests at given times, and says how many of them are allowed. The requests
/// run in memory on a simulated clock, so the command does not wait and contacts no server:
///
///   rules: rules.yaml
///   tests:
///     - name: a burst of five, then one every half second
///       request: { action: search, api_key: k-1 }
///       steps:
///         - { at: 0s, times: 6, allowed: 5, rule: search-per-key, retry_after: 500ms }
///         - { at: +1s, times: 3, allowed: 2 }
///         - { at: +1h, allowed: 1, remaining: 4 }
///
///   tollgate test rules.test.yaml
///   tollgate test --format json tests/*.yaml
///
/// `at: 5s` is five seconds after the start of the test, and `at: +5s` five seconds after the previous step. For each step
/// that fails, the command prints what was expected, what was decided, and the numbers of every rule.
///
/// Every test starts with an empty store. Leases of a `concurrency` limit are not released, and no failure is reported to a
/// `penalty`. The hash key decides which subjects are in a rollout; without --hash-key-file and TOLLGATE_HASH_KEY, an
/// example key is used.
#[derive(clap::Args)]
#[command(
    verbatim_doc_comment,
    after_long_help = "\
Exit codes:
  0  every test passed
  1  at least one test failed
  2  the command line, a test file or a rules file is invalid; all problems are printed, and the other files are run"
)]
pub(crate) struct Args {
    /// Test files; `-` is standard input
    #[arg(required_unless_present = "schema", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Print the JSON Schema of test files, for editors
    #[arg(long, conflicts_with = "files")]
    schema: bool,
    #[command(flatten)]
    hash_key: HashKeyArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// For programs: one object with the numbers of tests, the problems of files and the result of every step
    Json,
}

/// The results of one file.
struct FileResult {
    source: Source,
    tests: Vec<TestResult>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    if args.schema {
        let schema = json_schema(file_shape(), "urn:tollgate:tests:1", "Tests of Tollgate rules, version 1");
        terminal::print(&format!("{schema:#}\n"))?;
        return Ok(exit::SUCCESS);
    }
    if args.files.iter().filter(|file| file.as_os_str() == STDIN).count() > 1 {
        return Err(Failure::new("duplicate file `-`", "standard input can be read only once").into());
    }
    let hasher = args.hash_key.get_or_example()?;
    let mut rules = RulesFiles::default();
    let mut results = Vec::new();
    let mut invalid: Vec<(Source, Problems)> = Vec::new();
    let mut unreadable = false;
    for path in &args.files {
        let source = match files::read(path) {
            Ok(source) => source,
            Err(failure) => {
                terminal::fail(&failure.into());
                unreadable = true;
                continue;
            }
        };
        let mut problems = Problems::new();
        match file::read(&source, path, &mut rules, &mut problems) {
            Some(tests) => {
                let tests = tests.into_iter().map(|test| run_test(test, &hasher)).collect::<Result<_>>()?;
                results.push(FileResult { source, tests });
            }
            None => invalid.push((source, problems)),
        }
    }
    invalid.extend(rules.into_invalid());
    terminal::print(&match args.format {
        Format::Text => {
            let problems = invalid.iter().map(|(source, problems)| terminal::problems(problems, source));
            crate::stderr::write(&problems.collect::<String>());
            report::text(&results)
        }
        Format::Json => report::json(&results, &invalid),
    })?;
    let failed = results.iter().flat_map(|file| &file.tests).any(|test| !test.passed());
    Ok(match (unreadable || !invalid.is_empty(), failed) {
        (true, _) => exit::invalid_input(),
        (false, true) => exit::NEGATIVE,
        (false, false) => exit::SUCCESS,
    })
}
