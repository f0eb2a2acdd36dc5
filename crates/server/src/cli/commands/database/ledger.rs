//! `tollgate ledger`: reads, checks and corrects the ledger.

use std::fmt::Write;
use std::process::ExitCode;

use anyhow::Result;
use clap::ValueEnum;
use serde_json::json;
use tollgate::core::Time;
use tollgate_database::ledger::{Entry, Id};
use tollgate_database::{Database, Filter};

use super::database_args::{DatabaseArgs, block_on, failure};
use super::{Format, change, instant_text, subject_id, subject_text, verify};
use crate::cli::request_args::instant;
use crate::cli::{csv, exit, terminal};

/// Entries that are read at once.
const PAGE: i64 = 1_000;

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
    Usage(UsageArgs),
    /// Write the entries as JSON lines or CSV
    Export(ExportArgs),
    /// Change the allowance of an account; negative units take away
    #[command(allow_negative_numbers = true)]
    Correct(change::Args),
    /// Add units to the allowance of an account
    Grant(change::Args),
}

#[derive(clap::Args)]
struct UsageArgs {
    #[command(flatten)]
    database: DatabaseArgs,
    #[command(flatten)]
    filter: FilterArgs,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(clap::Args)]
struct ExportArgs {
    #[command(flatten)]
    database: DatabaseArgs,
    #[command(flatten)]
    filter: FilterArgs,
    /// Output format
    #[arg(long, value_enum, default_value_t = ExportFormat::Json)]
    format: ExportFormat,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum ExportFormat {
    /// One JSON object per line
    Json,
    /// Comma-separated values with a header
    Csv,
}

#[derive(clap::Args)]
struct FilterArgs {
    /// Only this rule; NAMESPACE/RULE outside the namespace `default`
    #[arg(long, value_name = "ID")]
    rule: Option<String>,
    /// Only this subject, as keys show it
    #[arg(long, value_name = "SUBJECT", value_parser = subject_id)]
    subject: Option<Id>,
    /// Only periods that begin at this time or later
    #[arg(long, value_name = "TIME", value_parser = instant)]
    from: Option<Time>,
    /// Only periods that begin before this time
    #[arg(long, value_name = "TIME", value_parser = instant)]
    to: Option<Time>,
}

impl FilterArgs {
    fn filter(&self) -> Filter {
        let us = |at: Time| i64::try_from(at.us()).unwrap_or(i64::MAX);
        let rule = self.rule.clone();
        Filter { rule, subject: self.subject, from_us: self.from.map(us), to_us: self.to.map(us) }
    }
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    match &args.command {
        Command::Verify(args) => verify::run(args),
        Command::Usage(args) => block_on(usage(args)),
        Command::Export(args) => block_on(export(args)),
        Command::Correct(args) => change::run(args, change::Direction::Correct),
        Command::Grant(args) => change::run(args, change::Direction::Grant),
    }
}

async fn usage(args: &UsageArgs) -> Result<ExitCode> {
    let database = args.database.open().await?;
    let accounts = database.usage(&args.filter.filter()).await.map_err(failure)?;
    let mut text = String::new();
    match args.format {
        Format::Json => {
            let accounts: Vec<_> = accounts
                .iter()
                .map(|(account, balance)| {
                    json!({
                        "rule": &*account.subject.rule,
                        "subject": subject_text(account),
                        "period": instant_text(account.period_us),
                        "ends": instant_text(balance.ends_us),
                        "granted": balance.granted(),
                        "used": balance.posted,
                        "held": balance.pending,
                        "available": balance.available(),
                    })
                })
                .collect();
            writeln!(text, "{}", json!({ "accounts": accounts }))?;
        }
        Format::Text => {
            let widest =
                accounts.iter().map(|(account, _)| account.subject.rule.len()).max().unwrap_or(0).max(4);
            writeln!(
                text,
                "{:widest$}  {:22}  {:20}  {:>14}  {:>14}  {:>14}  {:>14}",
                "rule", "subject", "period", "granted", "used", "held", "available"
            )?;
            for (account, balance) in &accounts {
                writeln!(
                    text,
                    "{:widest$}  {:22}  {:20}  {:>14}  {:>14}  {:>14}  {:>14}",
                    &*account.subject.rule,
                    subject_text(account),
                    instant_text(account.period_us),
                    balance.granted(),
                    balance.posted,
                    balance.pending,
                    balance.available(),
                )?;
            }
        }
    }
    terminal::print(&text)?;
    Ok(exit::SUCCESS)
}

async fn export(args: &ExportArgs) -> Result<ExitCode> {
    let database = args.database.open().await?;
    if args.format == ExportFormat::Csv {
        terminal::print("writer,seq,n,kind,rule,subject,period,at,posted,pending,granted,cause,actor\n")?;
    }
    let filter = args.filter.filter();
    let mut after = (Id([0; 16]), -1, -1);
    loop {
        let page = database_page(&database, &filter, after).await?;
        let Some((writer, last)) = page.last() else { return Ok(exit::SUCCESS) };
        after = (*writer, last.seq, last.n);
        let mut text = String::new();
        for (writer, entry) in &page {
            match args.format {
                ExportFormat::Json => writeln!(text, "{}", entry_json(*writer, entry))?,
                ExportFormat::Csv => text += &entry_csv(*writer, entry),
            }
        }
        terminal::print(&text)?;
    }
}

async fn database_page(
    database: &Database,
    filter: &Filter,
    after: (Id, i64, i64),
) -> Result<Vec<(Id, Entry)>> {
    Ok(database.page(filter, after, PAGE).await.map_err(failure)?)
}

fn entry_json(writer: Id, entry: &Entry) -> serde_json::Value {
    json!({
        "writer": writer.to_string(),
        "seq": entry.seq,
        "n": entry.n,
        "kind": entry.kind.name(),
        "rule": &*entry.account.subject.rule,
        "subject": subject_text(&entry.account),
        "period": instant_text(entry.account.period_us),
        "at": instant_text(entry.at_us),
        "posted": entry.d_posted,
        "pending": entry.d_pending,
        "granted": entry.d_granted,
        "cause": entry.cause,
        "actor": entry.actor,
    })
}

fn entry_csv(writer: Id, entry: &Entry) -> String {
    let numbers = [entry.d_posted, entry.d_pending, entry.d_granted].map(|number| number.to_string());
    let fields = [
        writer.to_string(),
        entry.seq.to_string(),
        entry.n.to_string(),
        entry.kind.name().to_owned(),
        entry.account.subject.rule.to_string(),
        subject_text(&entry.account),
        instant_text(entry.account.period_us),
        instant_text(entry.at_us),
    ];
    let texts = [entry.cause.clone(), entry.actor.clone()];
    let fields = fields.into_iter().chain(numbers).chain(texts);
    csv::line(fields)
}
