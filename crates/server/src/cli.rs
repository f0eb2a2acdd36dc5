//! The command line. `commands` has one file per command; the other modules are shared by commands.

pub(crate) mod client;
pub(crate) mod commands;
pub(crate) mod csv;
pub(crate) mod exit;
pub(crate) mod hash_key;
pub(crate) mod notation;
pub(crate) mod request_args;
pub(crate) mod store_args;
pub(crate) mod terminal;

use std::process::ExitCode;

use clap::Parser;
use commands::control::{audit, changes, rules as rules_command};
use commands::database::{ledger, schema as database};
use commands::operate::{doctor, top, usage, why};
use commands::program::{completions, man};
use commands::rules::{estimate, explain, guide, import, lint, presets, schema, simulate, test, r#try};
use commands::server::{check, config as config_command, reset, serve as serve_command, token};

/// Admission control: may this request, job or token spend proceed right now?
#[derive(Parser)]
#[command(
    name = "tollgate",
    version,
    propagate_version = true,
    arg_required_else_help = true,
    after_help = "\
First steps:
  tollgate serve                               a server with a few rules to try
  tollgate try 'token-bucket: 2/s, burst: 5'   watch a limit decide
  tollgate guide                               find the right limit
  tollgate presets public-endpoint > rules.yaml && tollgate lint rules.yaml

Exit codes:
  0  yes, or done
  1  the answer is no: refused, invalid, nothing matched
  2  the command line, the configuration or a file is invalid
  3  the server, the store or the database did not answer
  4  the server declined: a missing token or scope, a conflict

Run `tollgate COMMAND --help` for details, examples and exit codes."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Lint(lint::Args),
    Test(test::Args),
    Explain(explain::Args),
    Check(check::Args),
    Usage(usage::Args),
    Why(why::Args),
    Top(top::Args),
    Override(changes::OverrideArgs),
    Deny(changes::DenyArgs),
    Bypass(changes::BypassArgs),
    Rules(rules_command::Args),
    Audit(audit::Args),
    Doctor(doctor::Args),
    Serve(serve_command::Args),
    Config(config_command::Args),
    Token(token::Args),
    Try(r#try::Args),
    Simulate(simulate::Args),
    Estimate(estimate::Args),
    Guide(guide::Args),
    Import(import::Args),
    Presets(presets::Args),
    Reset(reset::Args),
    Ledger(ledger::Args),
    Database(database::Args),
    Schema(schema::Args),
    Completions(completions::Args),
    Man(man::Args),
}

/// Parses the command line, runs the command and returns its exit code.
pub(crate) fn run() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Lint(args) => lint::run(&args),
        Command::Test(args) => test::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Usage(args) => usage::run(&args),
        Command::Why(args) => why::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Override(args) => changes::run_override(&args),
        Command::Deny(args) => changes::run_deny(&args),
        Command::Bypass(args) => changes::run_bypass(&args),
        Command::Rules(args) => rules_command::run(&args),
        Command::Audit(args) => audit::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Serve(args) => serve_command::run(&args),
        Command::Config(args) => config_command::run(&args),
        Command::Token(args) => token::run(&args),
        Command::Try(args) => r#try::run(&args),
        Command::Simulate(args) => simulate::run(&args),
        Command::Estimate(args) => estimate::run(&args),
        Command::Guide(args) => guide::run(&args),
        Command::Import(args) => import::run(&args),
        Command::Presets(args) => presets::run(&args),
        Command::Reset(args) => reset::run(&args),
        Command::Ledger(args) => ledger::run(&args),
        Command::Database(args) => database::run(&args),
        Command::Schema(args) => schema::run(&args),
        Command::Completions(args) => completions::run(&args),
        Command::Man(args) => man::run(&args),
    };
    result.unwrap_or_else(|error| terminal::fail(&error))
}
