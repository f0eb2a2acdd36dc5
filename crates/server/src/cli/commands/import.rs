//! `tollgate import`: rules of other limiters as ours.

mod envoy;
mod expression;
mod limitador;
mod reading;
mod tree;
mod written;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use tollgate_document::{Node, Problems, Source, parse};

use crate::cli::{exit, terminal};
use crate::failure::Failure;
use crate::files;
use written::Written;

/// Write the rules of another rate limiter as rules of ours
///
/// The rules go to standard output, with a comment on everything that differs. What cannot be carried over is also told
/// on standard error, with its place in the file.
///
///   tollgate import envoy ratelimit.yaml > rules.yaml
///   tollgate import limitador limits.yaml > rules.yaml
///   tollgate lint rules.yaml
///
/// The attributes are those that `tollgate serve --grpc` makes of a descriptor's entries, so a gateway that asked the other
/// limiter can ask this one.
#[derive(clap::Args)]
#[command(
    verbatim_doc_comment,
    after_long_help = "\
Exit codes:
  0  all of it was carried over; comments say what differs
  1  something was not carried over; warnings and comments say what
  2  the command line is wrong, or the file cannot be read or is no such file"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    from: From,
}

#[derive(Subcommand)]
enum From {
    /// A configuration of envoyproxy/ratelimit
    ///
    ///   tollgate import envoy ratelimit.yaml > rules.yaml
    #[command(verbatim_doc_comment)]
    Envoy {
        /// The file; `-` is standard input
        file: PathBuf,
    },
    /// A limits file of Limitador
    ///
    ///   tollgate import limitador limits.yaml > rules.yaml
    #[command(verbatim_doc_comment)]
    Limitador {
        /// The file; `-` is standard input
        file: PathBuf,
    },
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let (file, read): (_, fn(&Node, &mut Problems) -> Option<Written>) = match &args.from {
        From::Envoy { file } => (file, envoy::read),
        From::Limitador { file } => (file, limitador::read),
    };
    let source = files::read(file)?;
    let mut problems = Problems::new();
    let written = parse(&source, &mut problems).and_then(|root| read(&root, &mut problems));
    crate::stderr::write(&terminal::problems(&problems, &source));
    match written {
        Some(written) if !problems.has_errors() => {
            terminal::print(&written.text(source.name()))?;
            Ok(if problems.is_empty() { exit::GOOD } else { exit::BAD })
        }
        _ => Err(unusable(&source).into()),
    }
}

fn unusable(source: &Source) -> Failure {
    let hint = "`tollgate import --help` names the files that are understood";
    Failure::new(format!("{} cannot be imported", source.name()), hint)
}
