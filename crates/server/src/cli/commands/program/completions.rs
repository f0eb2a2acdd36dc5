//! `tollgate completions`: completion scripts for shells.

use std::process::ExitCode;

use anyhow::Result;
use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::{Cli, exit, terminal};

/// Print a shell script that completes commands, options and values
///
///   tollgate completions bash > ~/.local/share/bash-completion/completions/tollgate
///   tollgate completions zsh > "${fpath[1]}/_tollgate"
///   tollgate completions fish > ~/.config/fish/completions/tollgate.fish
///   tollgate completions powershell >> $PROFILE
#[derive(clap::Args)]
#[command(
    verbatim_doc_comment,
    after_long_help = "\
Exit codes:
  0  the script was printed
  2  the command line is invalid"
)]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let mut command = Cli::command();
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, name, &mut script);
    terminal::print(&String::from_utf8(script)?)?;
    Ok(exit::SUCCESS)
}
