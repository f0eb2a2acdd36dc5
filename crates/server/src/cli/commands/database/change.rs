//! `tollgate ledger correct` and `tollgate ledger grant`: change the allowance of one account.

use std::process::ExitCode;

use anyhow::Result;
use serde_json::json;
use tollgate::Clock;
use tollgate::SystemClock;
use tollgate::core::rules::{Planned, Request};
use tollgate::core::{SubjectHashers, Time, Token};
use tollgate::ledger::account_of;
use tollgate_database::ledger::{Change, Kind};

use super::database_args::{DatabaseArgs, block_on, failure};
use super::{Format, microseconds};
use crate::cli::request_args::{RequestArgs, instant};
use crate::cli::{exit, terminal};
use crate::failure::Failure;
use crate::ledger_form::{instant_text, subject_text};
use crate::text::escape_control;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    database: DatabaseArgs,
    #[command(flatten)]
    request: RequestArgs,
    /// Id of the rule
    #[arg(long, value_name = "ID")]
    rule: String,
    /// Units to add to the allowance
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    units: i64,
    /// Why it is changed
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Who changes it [default: the user of this command]
    #[arg(long, value_name = "NAME")]
    actor: Option<String>,
    /// An instant in the period to change [default: now]
    #[arg(long, value_name = "TIME", value_parser = instant)]
    at: Option<Time>,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// Which kind of entry is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    Correct,
    Grant,
}

pub(crate) fn run(args: &Args, direction: Direction) -> Result<ExitCode> {
    if direction == Direction::Grant && args.units <= 0 {
        let hint = "use `tollgate ledger correct` to take units away";
        return Err(Failure::new(format!("a grant of {} units adds nothing", args.units), hint).into());
    }
    let (_, rules) = args.request.load_rules("nothing was changed")?;
    let attributes = args.request.attributes()?;
    let hashers = SubjectHashers::from(args.request.hash_key.required()?);
    let now = SystemClock.now();
    let request = Request { cost: 0, token: Token(1), ..Request::new(&attributes) };
    let planned = rules.plan(&request, &hashers, args.at.unwrap_or(now))?;
    let record = match &planned {
        Planned::Plan { plan, .. } => {
            let mut items = plan.items().iter();
            items
                .find(|item| item.key.keyspace().rule() == args.rule)
                .map(|item| account_of(item, args.at.unwrap_or(now)))
        }
        _ => None,
    };
    let Some(template) = record else {
        let what = format!(
            "rule `{}` does not match the attributes; nothing was changed",
            escape_control(&args.rule)
        );
        terminal::warn(&what, "`tollgate explain` shows which rules match");
        return Ok(exit::NEGATIVE);
    };
    let actor =
        args.actor.clone().or_else(|| std::env::var("USER").ok()).unwrap_or_else(|| "unknown".to_owned());
    let change = Change { units: args.units, actor, cause: args.reason.clone() };
    let kind = if direction == Direction::Grant { Kind::Grant } else { Kind::Correct };
    let now_us = microseconds(now);
    let (number, balance) = block_on(async {
        let database = args.database.open().await?;
        let number = database.change(&template, kind, change, now_us).await.map_err(failure)?;
        let mut balances = database.balances(vec![template.account.clone()]).await.map_err(failure)?;
        Ok((number, balances.remove(&template.account).unwrap_or_default()))
    })?;
    let (subject, period) = (subject_text(&template.account), instant_text(template.account.period_us));
    terminal::print(&match args.format {
        Format::Json => {
            let result = json!({
                "rule": args.rule, "subject": subject, "period": period, "units": args.units, "number": number,
                "granted": balance.granted(), "used": balance.posted, "available": balance.available(),
            });
            format!("{result}\n")
        }
        Format::Text => format!(
            "changed the allowance of {subject} under rule {} in the period {period} by {}: {} granted, {} used, {} left\n",
            args.rule,
            args.units,
            balance.granted(),
            balance.posted,
            balance.available(),
        ),
    })?;
    Ok(exit::SUCCESS)
}
