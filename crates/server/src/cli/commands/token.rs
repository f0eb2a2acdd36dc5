//! `tollgate token`: a random token, and the line of the configuration that accepts it.

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::ValueEnum;

use crate::access::Digest;
use crate::cli::{exit, terminal};
use crate::config::TOKEN_PREFIX;

/// Create a token for a caller, and print the line for the server's configuration
///
/// The token is printed once, to standard output. Give it to the caller, which sends it as `Authorization: Bearer TOKEN`
/// over HTTP and gRPC, or as `AUTH TOKEN` over the Redis protocol (RESP). The line for `tokens:` in the configuration file
/// is printed to standard error. It contains a digest, which does not reveal the token.
///
///   tollgate token --name checkout
///   tollgate token --name grafana --scopes read > grafana.token
///
/// To replace a token, create a new one and add its line. Give it to the callers, then remove the line of the old token.
#[derive(clap::Args)]
#[command(
    verbatim_doc_comment,
    after_long_help = "\
Exit codes:
  0  the token was printed
  2  the command line is invalid"
)]
pub(crate) struct Args {
    /// Name of the token, which logs contain
    #[arg(long, value_name = "NAME", default_value = "client", value_parser = name)]
    name: String,
    /// What the token permits; separate scopes by commas
    #[arg(long, value_enum, value_delimiter = ',', default_value = "check")]
    scopes: Vec<Scope>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Scope {
    /// Checks, and what follows them: refunds, leases, reports
    Check,
    /// Reading: rules, metrics, explanations
    Read,
    /// Changes: resets
    Admin,
}

fn name(text: &str) -> Result<String, String> {
    crate::config::token_name(text).map(|()| text.to_owned())
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let mut random = [0; 32];
    getrandom::fill(&mut random).context("cannot get random numbers from the operating system")?;
    let digits: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let token = format!("{TOKEN_PREFIX}{digits}");
    let mut scopes: Vec<String> = Vec::new();
    for name in args.scopes.iter().filter_map(ValueEnum::to_possible_value) {
        if !scopes.iter().any(|scope| scope == name.get_name()) {
            scopes.push(name.get_name().to_owned());
        }
    }
    let digest = Digest::of(token.as_bytes());
    terminal::print(&format!("{token}\n"))?;
    crate::stderr::write(&format!(
        "\ntokens:\n  - {{ name: {}, digest: \"{digest}\", scopes: [{}] }}\n",
        args.name,
        scopes.join(", ")
    ));
    Ok(exit::SUCCESS)
}
