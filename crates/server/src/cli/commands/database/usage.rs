//! `tollgate ledger usage`: what accounts have used, hold and have left.

use std::fmt::Write;
use std::process::ExitCode;

use anyhow::Result;
use serde_json::{Value, json};
use tollgate_database::Usage;

use super::database_args::{DatabaseArgs, block_on, failure};
use super::{FilterArgs, Format};
use crate::cli::{exit, terminal};
use crate::ledger_form::{instant_text, subject_text, usage_json};
use crate::text::escape_control;

/// Accounts that are read at once.
const PAGE: i64 = 1_000;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    database: DatabaseArgs,
    #[command(flatten)]
    filter: FilterArgs,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    block_on(async {
        let database = args.database.open().await?;
        let filter = args.filter.filter();
        let mut accounts: Vec<Usage> = Vec::new();
        loop {
            let page = database.usage(&filter, accounts.len() as i64, PAGE).await.map_err(failure)?;
            let is_last = page.len() < PAGE as usize;
            accounts.extend(page);
            if is_last {
                break;
            }
        }
        terminal::print(&match args.format {
            Format::Json => {
                let accounts: Vec<Value> = accounts.iter().map(usage_json).collect();
                format!("{}\n", json!({ "accounts": accounts }))
            }
            Format::Text => to_text(&accounts)?,
        })?;
        Ok(exit::SUCCESS)
    })
}

fn to_text(accounts: &[Usage]) -> Result<String> {
    let widest = accounts.iter().map(|usage| usage.account.subject.rule.len()).max().unwrap_or(0).max(4);
    let names = accounts.iter().any(|usage| usage.name.is_some());
    let mut text = String::new();
    write!(
        text,
        "{:widest$}  {:22}  {:20}  {:>14}  {:>14}  {:>14}  {:>14}",
        "rule", "subject", "period", "granted", "used", "held", "available"
    )?;
    text.push_str(if names { "  name\n" } else { "\n" });
    for Usage { account, name, balance } in accounts {
        write!(
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
        match name {
            Some(name) => writeln!(text, "  {}", escape_control(name))?,
            None => text.push('\n'),
        }
    }
    Ok(text)
}
