//! `tollgate token`: new tokens, and those of a configuration.

mod create;
mod list;

use std::process::ExitCode;

use anyhow::Result;

/// Create a token for a caller, and print the line for the server's configuration
///
/// The token is printed once, to standard output. Give it to the caller, which sends it as `Authorization: Bearer TOKEN`
/// over HTTP and gRPC, or as `AUTH TOKEN` over the Redis protocol (RESP). The line for `tokens:` in the configuration file
/// is printed to standard error. It contains a digest, which does not reveal the token. `tollgate token` without a command
/// is `tollgate token new`.
///
///   tollgate token --name checkout
///   tollgate token --name grafana --scopes metrics > grafana.token
///   tollgate token --name acme --scopes check,refund --attribute tenant=acme
///   tollgate token --name log-in --scopes check,report --rule log-in
///   tollgate token list --config tollgate.yaml
///
/// A token with `--attribute` may send only this value for the attribute. The server fills in an absent one. With a token
/// with `--rule`, a request is refused if it matches a rule that is not named.
///
/// To replace a token, create a new one and add its line. Give it to the callers, then remove the line of the old token.
#[derive(clap::Args)]
#[command(
    verbatim_doc_comment,
    args_conflicts_with_subcommands = true,
    after_long_help = "\
Exit codes:
  0  the token was printed
  2  the command line is invalid"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<TokenCommand>,
    #[command(flatten)]
    new: create::NewArgs,
}

#[derive(clap::Subcommand)]
enum TokenCommand {
    /// Create a token
    #[command(after_long_help = "\
Exit codes:
  0  the token was printed
  2  the command line is invalid")]
    New(create::NewArgs),
    List(list::Args),
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    match &args.command {
        None => create::run(&args.new),
        Some(TokenCommand::New(args)) => create::run(args),
        Some(TokenCommand::List(args)) => list::run(args),
    }
}
