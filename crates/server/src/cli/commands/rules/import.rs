//! `tollgate import`: converts the configuration of other rate limiters to a rules file.

mod descriptor_tree;
mod envoy;
mod expression;
mod fields;
mod input;
mod limitador;
mod rules_file;
#[cfg(test)]
mod tests;
mod value_test;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use tollgate_document::{Colour, Problems, Source};

use crate::cli::{exit, terminal};
use crate::failure::Failure;
use input::Input;
use rules_file::RulesFile;

/// Convert the configuration of another rate limiter to a rules file
///
/// The rules file is printed to standard output. Its rules match the same requests and count them by the same values as
/// the original. A file with something that no rule can express is refused: the report names file, line and reason, and
/// nothing is printed. Several files are merged into one rules file.
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
  0  the rules match as the original does
  1  the rules match as the original does once you changed the setting that a warning names
  2  the command line is invalid, or a file cannot be read, is not of this format or cannot be expressed as rules"
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
        /// Files to import; `-` is standard input
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Import a limits file of Limitador
    ///
    ///   tollgate import limitador limits.yaml > rules.yaml
    #[command(verbatim_doc_comment)]
    Limitador {
        /// Files to import; `-` is standard input
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let (files, convert): (_, Converter) = match &args.from {
        From::Envoy { files } => (files, envoy::convert),
        From::Limitador { files } => (files, limitador::convert),
    };
    let mut inputs = input::read(files)?;
    let converted = convert_all(&mut inputs, convert);
    crate::stderr::write(&input::problems_text(&inputs));
    terminal::print(&converted?)?;
    Ok(if inputs.iter().any(Input::has_warnings) { exit::NEGATIVE } else { exit::SUCCESS })
}

/// A limiter whose configuration can be imported.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Limiter {
    Envoy,
    Limitador,
}

/// Converts one file, for the fuzz target.
pub(crate) fn convert_bytes(limiter: Limiter, bytes: &[u8]) -> Result<String, String> {
    let convert = match limiter {
        Limiter::Envoy => envoy::convert,
        Limiter::Limitador => limitador::convert,
    };
    let mut inputs = [Input::new(Source::new("file.yaml", bytes))];
    convert_all(&mut inputs, convert).map_err(|failure| failure.to_string())
}

/// Converts the configuration of another limiter. It adds problems to its inputs.
type Converter = fn(&mut [Input]) -> RulesFile;

/// Returns the text of the rules file, unless there is an error in a file.
fn convert_all(inputs: &mut [Input], convert: Converter) -> Result<String, Failure> {
    let rules_file = convert(inputs);
    if let Some(input) = inputs.iter().find(|input| input.problems.has_errors()) {
        let hint = "`tollgate import --help` lists the accepted formats";
        return Err(Failure::new(format!("cannot import {}", input.source.name()), hint));
    }
    let text = rules_file.text(&input::names(inputs));
    // What is printed is what `tollgate serve` accepts. The original may be too large, for example.
    let source = Source::new("the converted rules", text.as_bytes());
    let mut problems = Problems::new();
    match tollgate::rules::load(&source, &mut problems) {
        Some(_) => Ok(text),
        None => {
            let message = format!(
                "cannot import {}: the rules are invalid\n{}",
                input::names(inputs),
                problems.render(&source, Colour::Plain)
            );
            Err(Failure::new(message, "divide the configuration over several servers, or make it smaller"))
        }
    }
}
