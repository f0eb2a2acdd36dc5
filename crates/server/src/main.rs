//! The binary `tollgate`: parses, runs, exits.

mod commands;

use std::process::ExitCode;

use clap::Parser;

/// Admission control: may this request, job or token spend proceed right now?
#[derive(Parser)]
#[command(version, propagate_version = true, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Ask a limit a few times and see what it answers
    Try(commands::r#try::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Try(args) => commands::r#try::run(&args),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}
