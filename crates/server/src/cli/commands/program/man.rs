//! `tollgate man`: manual pages, generated from the same definition as the help.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::CommandFactory;
use clap_mangen::Man;

use crate::cli::{Cli, exit, terminal};

/// Print the manual page, or write the pages of all commands
///
///   tollgate man | man -l -
///   tollgate man --out ~/.local/share/man/man1
#[derive(clap::Args)]
#[command(
    verbatim_doc_comment,
    after_long_help = "\
Exit codes:
  0  the page was printed, or all pages were written
  2  the command line is invalid, or the directory cannot be written"
)]
pub(crate) struct Args {
    /// Write one page per command to this directory, which is created if necessary
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    match &args.out {
        Some(folder) => write(folder).with_context(|| format!("cannot write to {}", folder.display()))?,
        None => {
            let mut page = Vec::new();
            Man::new(Cli::command()).render(&mut page)?;
            terminal::print(&String::from_utf8(page)?)?;
        }
    }
    Ok(exit::SUCCESS)
}

fn write(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    clap_mangen::generate_to(Cli::command(), folder)?;
    Ok(())
}
