//! `tollgate lint`: all problems of rules files.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::ValueEnum;
use serde_json::json;
use tollgate::rules::lint::LintOptions;
use tollgate::rules::load_and_lint;
use tollgate::{Clock, SystemClock};
use tollgate_document::{Problems, Severity, Source, sarif};

use crate::cli::exit;
use crate::cli::terminal;
use crate::failure::Failure;
use crate::files::{self, STDIN};

/// Find all problems of rules files
///
/// For each problem, the command prints its position, what is wrong and how to correct it. It reads all files to the end.
///
///   tollgate lint rules.yaml
///   tollgate lint --deny-warnings a.yaml b.yaml
///   tollgate lint --format sarif rules.yaml > rules.sarif
///   generate-rules | tollgate lint -
///
/// Several files are checked one by one. A folder is checked as `tollgate serve --rules DIR` reads it: its files belong
/// together.
///
///   tollgate lint rules/
///
/// A server does not load a file with an error. A warning is probably a mistake. A note is worth knowing. Warnings and
/// notes are only searched for in files without errors.
#[derive(clap::Args)]
#[command(
    verbatim_doc_comment,
    after_long_help = "\
Exit codes:
  0  no errors, and with --deny-warnings no warnings
  1  at least one error, or with --deny-warnings at least one warning
  2  the command line is invalid, or a file cannot be read; the other files are checked"
)]
pub(crate) struct Args {
    /// Rules files, or folders of rules files; `-` is standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Exit with 1 also for warnings
    #[arg(long)]
    deny_warnings: bool,
    /// Also report what differs on a Redis Cluster
    #[arg(long)]
    cluster: bool,
    /// Attribute that your requests have in addition to the usual ones; repeat the flag, or separate names by commas
    #[arg(long = "known-attribute", value_name = "NAME", value_delimiter = ',')]
    known_attributes: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// For programs: one object with the numbers of problems and a list of them
    Json,
    /// For code review tools: the Static Analysis Results Interchange Format 2.1.0
    Sarif,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    if args.files.iter().filter(|file| file.as_os_str() == STDIN).count() > 1 {
        return Err(Failure::new("duplicate file `-`", "standard input can be read only once").into());
    }
    let mut options = LintOptions { cluster: args.cluster, ..LintOptions::new(SystemClock.now()) };
    options.known_attributes.extend(args.known_attributes.iter().cloned());
    let mut linted = Vec::new();
    let mut unreadable = None;
    for file in &args.files {
        match files::read_rules(file) {
            Ok(source) => {
                let mut problems = Problems::new();
                load_and_lint(&source, &options, &mut problems);
                linted.push((source, problems));
            }
            Err(failure) => {
                unreadable = Some(terminal::fail(&failure.into()));
            }
        }
    }
    let count = Count::of(&linted);
    terminal::print(&match args.format {
        Format::Text => text(&linted, &count),
        Format::Json => json(&linted, &count),
        Format::Sarif => format!("{:#}\n", sarif(linted.iter().map(|(source, problems)| (source, problems)))),
    })?;
    let denied = count.has_errors || (args.deny_warnings && count.warnings > 0);
    Ok(match unreadable {
        Some(code) => code,
        None if denied => exit::NEGATIVE,
        None => exit::SUCCESS,
    })
}

/// Numbers of files and problems.
struct Count {
    files: usize,
    errors: usize,
    warnings: usize,
    notes: usize,
    /// Problems of any severity beyond the maximum that is kept per file.
    unlisted: usize,
    /// Whether any file has errors.
    has_errors: bool,
}

impl Count {
    fn of(linted: &[(Source, Problems)]) -> Count {
        let of = |severity| {
            let problems = linted.iter().flat_map(|(_, problems)| problems.in_order());
            problems.filter(|problem| problem.severity == severity).count()
        };
        Count {
            files: linted.len(),
            errors: of(Severity::Error),
            warnings: of(Severity::Warning),
            notes: of(Severity::Note),
            unlisted: linted.iter().map(|(_, problems)| problems.left_out()).sum(),
            has_errors: linted.iter().any(|(_, problems)| problems.has_errors()),
        }
    }

    /// `2 files, 3 errors, 1 warning`.
    fn summary(&self) -> String {
        let of = |number: usize, what: &str| match number {
            1 => format!("1 {what}"),
            _ => format!("{number} {what}s"),
        };
        let mut parts = vec![of(self.files, "file")];
        for (number, what) in [(self.errors, "error"), (self.warnings, "warning"), (self.notes, "note")] {
            if number > 0 {
                parts.push(of(number, what));
            }
        }
        if self.unlisted > 0 {
            parts.push(format!("{} more not listed", self.unlisted));
        }
        if parts.len() == 1 && self.files > 0 {
            parts.push("no problems".to_owned());
        }
        parts.join(", ")
    }
}

fn text(linted: &[(Source, Problems)], count: &Count) -> String {
    let found: String =
        linted.iter().map(|(source, problems)| terminal::problems(problems, source)).collect();
    format!("{found}{}\n", count.summary())
}

fn json(linted: &[(Source, Problems)], count: &Count) -> String {
    let problems: Vec<_> = linted
        .iter()
        .flat_map(|(source, problems)| match problems.to_json(source) {
            serde_json::Value::Array(list) => list,
            other => vec![other],
        })
        .collect();
    let Count { files, errors, warnings, notes, unlisted, .. } = count;
    let all = json!({
        "files": files,
        "errors": errors,
        "warnings": warnings,
        "notes": notes,
        "unlisted": unlisted,
        "problems": problems,
    });
    format!("{all:#}\n")
}
