//! `tollgate token`: a token that nobody can guess, and what is kept of it.

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::ValueEnum;

use crate::access::Digest;
use crate::cli::{exit, terminal};
use crate::config::TOKEN_PREFIX;

/// Make a token for clients, and print what the server keeps of it
///
/// The token goes to standard output, once: give it to the client, which shows it as `Authorization: Bearer TOKEN`, or with
/// `AUTH TOKEN` in the protocol of Redis. The line for `tokens:` in the server's configuration goes to standard error. It holds a
/// digest, from which nobody finds the token.
///
///   tollgate token --name checkout
///   tollgate token --name grafana --scopes read > grafana.token
///
/// To replace a token make a new one, add its line, hand it out, and take away the old line when nobody uses it any more.
#[derive(clap::Args)]
#[command(verbatim_doc_comment, after_long_help = "Exit codes: 0 printed, 2 the command line is wrong.")]
pub(crate) struct Args {
    /// What people call it, in logs too
    #[arg(long, value_name = "NAME", default_value = "client", value_parser = name)]
    name: String,
    /// What its bearer may do
    #[arg(long, value_enum, value_delimiter = ',', default_value = "check")]
    scopes: Vec<Scope>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Scope {
    /// Ask for admission, and everything that follows from it
    Check,
    /// Look: rules, metrics, explanations
    Read,
    /// Change what is counted
    Admin,
}

fn name(text: &str) -> Result<String, String> {
    crate::config::token_name(text).map(|()| text.to_owned())
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let mut random = [0; 32];
    getrandom::fill(&mut random).context("the system gives no random numbers")?;
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
    Ok(exit::GOOD)
}
