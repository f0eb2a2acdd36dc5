//! `tollgate import`: converts the configuration of other rate limiters to a rules file.

mod descriptor_path;
mod envoy;
mod expression;
mod fields;
mod limitador;
mod rules_file;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use tollgate_document::{Node, Problems, Source, parse};

use crate::cli::{exit, terminal};
use crate::failure::Failure;
use crate::files;
use rules_file::RulesFile;

/// Convert the configuration of another rate limiter to a rules file
///
/// The rules file is printed to standard output, with comments on everything that differs. What cannot be carried over is
/// also reported on standard error, with its position in the file.
///
///   tollgate import envoy ratelimit.yaml > rules.yaml
///   tollgate import limitador limits.yaml > rules.yaml
///   tollgate lint rules.yaml
///
/// The rules use the attributes that `tollgate serve --grpc` derives from the entries of a descriptor. So a gateway that
/// used the other rate limiter can use Tollgate.
#[derive(clap::Args)]
#[command(
    verbatim_doc_comment,
    after_long_help = "\
Exit codes:
  0  everything was carried over; comments describe what differs
  1  something was not carried over; warnings and comments describe it
  2  the command line is invalid, or the file cannot be read or is not of this format"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    from: From,
}

#[derive(Subcommand)]
enum From {
    /// Import a configuration of envoyproxy/ratelimit
    ///
    ///   tollgate import envoy ratelimit.yaml > rules.yaml
    #[command(verbatim_doc_comment)]
    Envoy {
        /// File to import; `-` is standard input
        file: PathBuf,
    },
    /// Import a limits file of Limitador
    ///
    ///   tollgate import limitador limits.yaml > rules.yaml
    #[command(verbatim_doc_comment)]
    Limitador {
        /// File to import; `-` is standard input
        file: PathBuf,
    },
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let (file, convert): (_, fn(&Node, &mut Problems) -> Option<RulesFile>) = match &args.from {
        From::Envoy { file } => (file, envoy::convert),
        From::Limitador { file } => (file, limitador::convert),
    };
    let source = files::read(file)?;
    let mut problems = Problems::new();
    let rules_file = parse(&source, &mut problems).and_then(|root| convert(&root, &mut problems));
    crate::stderr::write(&terminal::problems(&problems, &source));
    match rules_file {
        Some(rules_file) if !problems.has_errors() => {
            terminal::print(&rules_file.text(source.name()))?;
            Ok(if problems.is_empty() { exit::SUCCESS } else { exit::NEGATIVE })
        }
        _ => Err(invalid(&source).into()),
    }
}

fn invalid(source: &Source) -> Failure {
    let hint = "`tollgate import --help` lists the accepted formats";
    Failure::new(format!("cannot import {}: the file is invalid", source.name()), hint)
}
