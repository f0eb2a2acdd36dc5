//! `tollgate ledger`: reads, checks and corrects the ledger. One file per command.

use std::process::ExitCode;

use anyhow::Result;

use super::{adopt, change, export, usage, verify};

/// Read, check and correct the ledger
///
/// The ledger records what rules with `ledger` admit. The commands read the database directly; servers may run meanwhile.
///
///   tollgate ledger usage --database sqlite:usage.db --rule tokens
///   tollgate ledger verify --database sqlite:usage.db
#[derive(clap::Args)]
#[command(
    verbatim_doc_comment,
    after_long_help = "\
Exit codes:
  0  done; the ledger is intact
  1  `verify` found a break, or the rule does not match the attributes
  2  the command line or a file is invalid
  3  the database cannot be reached, or reports an error

Environment:
  TOLLGATE_DATABASE           URL of the database; --database overrides it
  TOLLGATE_DATABASE_PASSWORD  password of the database; --database-password-file overrides it"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Check every hash chain, and that balances are the sums of their entries
    Verify(verify::Args),
    /// Show what accounts have used, hold and have left
    Usage(usage::Args),
    /// Write the entries as JSON lines or CSV
    Export(export::Args),
    /// Change the allowance of an account; negative units take away
    #[command(allow_negative_numbers = true)]
    Correct(change::Args),
    /// Add units to the allowance of an account
    Grant(change::Args),
    /// Post the journal of a server that will not return
    Adopt(adopt::Args),
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    match &args.command {
        Command::Verify(args) => verify::run(args),
        Command::Usage(args) => usage::run(args),
        Command::Export(args) => export::run(args),
        Command::Correct(args) => change::run(args, change::Direction::Correct),
        Command::Grant(args) => change::run(args, change::Direction::Grant),
        Command::Adopt(args) => adopt::run(args),
    }
}
