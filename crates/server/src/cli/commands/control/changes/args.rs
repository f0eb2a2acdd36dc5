//! The command lines of `override`, `deny` and `bypass`.

use clap::ValueEnum;

use super::conditions::{Condition, condition};
use crate::cli::client::{ClientArgs, DryRun};

/// Give some requests other numbers while servers run
///
/// An override changes the numbers of one rule for the requests that meet its conditions. It is in force on every server
/// within a second, has a reason, and ends by itself. The server needs a database, and the token the scope `change` (`read`
/// for list and show).
///
///   tollgate override add --rule search --when tenant=acme --scale 2 --for 2h --reason launch
///   tollgate override add --rule search --when plan=pro --limit 'token-bucket: 20/s, burst: 40' --permanent --reason contract
///   tollgate override list
///   tollgate override remove o-1f3a --reason 'the launch is over'
#[derive(clap::Args)]
#[command(verbatim_doc_comment, after_long_help = EXIT_CODES)]
pub(crate) struct OverrideArgs {
    #[command(subcommand)]
    pub(super) command: Command<AddOverride>,
}

/// Refuse some requests while servers run
///
/// A deny entry refuses the requests that meet its conditions, or one subject by the hash that logs, `tollgate why` and
/// `tollgate top` show. It comes before everything else. The server needs a database, and the token the scope `change`
/// (`read` for list and show).
///
///   tollgate deny add --when ip=192.0.2.0/24 --for 1h --reason flood
///   tollgate deny add --rule search --subject AAk3JxQ0b1 --reason abuse
///   tollgate deny remove d-1f3a --reason 'a mistake'
#[derive(clap::Args)]
#[command(verbatim_doc_comment, after_long_help = EXIT_CODES)]
pub(crate) struct DenyArgs {
    #[command(subcommand)]
    pub(super) command: Command<AddDeny>,
}

/// Let some requests pass uncounted while servers run
///
/// No rule checks the requests that meet the conditions of a bypass entry. Deny entries still do. The server needs a database,
/// and the token the scope `change` (`read` for list and show).
///
///   tollgate bypass add --when user=load-test --for 1h --reason 'load test'
///   tollgate bypass remove b-1f3a --reason 'the test is over'
#[derive(clap::Args)]
#[command(verbatim_doc_comment, after_long_help = EXIT_CODES)]
pub(crate) struct BypassArgs {
    #[command(subcommand)]
    pub(super) command: Command<AddBypass>,
}

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  2  the command line is invalid, the server refused what the change says, or no change has this id
  3  the server did not answer, or its database did not
  4  the server declined: a missing token or scope, no database, a lower limit without --allow-lower, or another caller
     changed it meanwhile

Environment:
  TOLLGATE_SERVER      server to call, like https://gate.example.com:9000; --server overrides it
  TOLLGATE_TOKEN       token; --token-file overrides it
  TOLLGATE_TOKEN_FILE  file with the token; --token-file overrides it";

#[derive(clap::Subcommand)]
pub(super) enum Command<A: clap::Args> {
    /// Add one
    #[command(after_long_help = EXIT_CODES)]
    Add(A),
    /// List all
    #[command(after_long_help = EXIT_CODES)]
    List(ListArgs),
    /// Show one
    #[command(after_long_help = EXIT_CODES)]
    Show(ShowArgs),
    /// End one
    #[command(after_long_help = EXIT_CODES)]
    Remove(RemoveArgs),
}

#[derive(clap::Args)]
pub(super) struct AddOverride {
    /// Rule whose numbers change
    #[arg(long, value_name = "ID")]
    pub(super) rule: String,
    /// Limit that replaces the rule's own, as in a rules file, like 'token-bucket: 20/s, burst: 40'
    #[arg(long, value_name = "LIMIT", required_unless_present = "scale", conflicts_with = "scale")]
    pub(super) limit: Option<String>,
    /// Multiply what would otherwise apply, like 2 or 0.5
    #[arg(long, value_name = "NUMBER")]
    pub(super) scale: Option<String>,
    /// Accept that some requests get less than now
    #[arg(long)]
    pub(super) allow_lower: bool,
    #[command(flatten)]
    pub(super) common: AddArgs,
}

#[derive(clap::Args)]
pub(super) struct AddDeny {
    /// Rule that counts the subject of --subject
    #[arg(long, value_name = "ID", requires = "subject")]
    pub(super) rule: Option<String>,
    /// Subject to deny, by its hash under --rule, instead of --when
    #[arg(long, value_name = "HASH", requires = "rule", conflicts_with_all = ["when", "all"])]
    pub(super) subject: Option<String>,
    #[command(flatten)]
    pub(super) common: AddArgs,
}

#[derive(clap::Args)]
pub(super) struct AddBypass {
    #[command(flatten)]
    pub(super) common: AddArgs,
}

#[derive(clap::Args)]
pub(super) struct AddArgs {
    /// Condition on an attribute, as in a rules file: a value, or a test like 'path={ prefix: /v1/ }'; can be repeated. `@FILE`
    /// reads the value from a file, so that a secret is on no command line
    #[arg(long, value_name = "NAME=VALUE", value_parser = condition)]
    pub(super) when: Vec<Condition>,
    /// For all requests, instead of --when
    #[arg(long, conflicts_with = "when")]
    pub(super) all: bool,
    /// How long it holds, like 2h; at most 30d
    #[arg(long, value_name = "DURATION", conflicts_with_all = ["until", "permanent"])]
    pub(super) r#for: Option<String>,
    /// When it ends, like 2026-12-01T00:00:00Z; at most 30 days from now
    #[arg(long, value_name = "INSTANT", conflicts_with = "permanent")]
    pub(super) until: Option<String>,
    /// Without an end; deny entries may also leave this away
    #[arg(long)]
    pub(super) permanent: bool,
    /// Why, for the audit trail
    #[arg(long, value_name = "TEXT")]
    pub(super) reason: String,
    /// Id of your choice: the same call repeated is made once
    #[arg(long, value_name = "ID")]
    pub(super) id: Option<String>,
    #[command(flatten)]
    pub(super) dry_run: DryRun,
    #[command(flatten)]
    pub(super) output: OutputArgs,
}

#[derive(clap::Args)]
pub(super) struct OutputArgs {
    #[command(flatten)]
    pub(super) client: ClientArgs,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(super) format: Format,
}

#[derive(clap::Args)]
pub(super) struct ListArgs {
    #[command(flatten)]
    pub(super) output: OutputArgs,
}

#[derive(clap::Args)]
pub(super) struct ShowArgs {
    /// Id of the change
    #[arg(value_name = "ID")]
    pub(super) id: String,
    #[command(flatten)]
    pub(super) output: OutputArgs,
}

#[derive(clap::Args)]
pub(super) struct RemoveArgs {
    /// Id of the change
    #[arg(value_name = "ID")]
    pub(super) id: String,
    /// Why, for the audit trail
    #[arg(long, value_name = "TEXT")]
    pub(super) reason: String,
    #[command(flatten)]
    pub(super) dry_run: DryRun,
    #[command(flatten)]
    pub(super) output: OutputArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum Format {
    /// For people
    Text,
    /// For programs: the answer of the server
    Json,
    /// A block for the rules file
    Yaml,
}
