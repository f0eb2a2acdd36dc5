//! `tollgate database retain`: partitions of the next months, and the end of old entries.

use std::process::ExitCode;

use anyhow::Result;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{ToSpan, Zoned};
use serde_json::json;
use tollgate_database::{Database, Dropped, Error, Month};

use super::Format;
use super::database_args::{DatabaseArgs, block_on, failure};
use crate::cli::{exit, terminal};
use crate::failure::Failure;

/// Months for which `migrate` and `retain` create partitions: this one and the next ones.
const MONTHS: i32 = 3;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    database: DatabaseArgs,
    /// Months after this one that get a partition; PostgreSQL only
    #[arg(long, value_name = "N", default_value_t = MONTHS, value_parser = clap::value_parser!(i32).range(0..=120))]
    months: i32,
    /// Drop the entries that were posted before this month, like 2026-01; export them first
    #[arg(long, value_name = "YYYY-MM", value_parser = first_day)]
    drop_before: Option<Date>,
    /// Only say what would be done
    #[arg(long)]
    dry_run: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

fn first_day(text: &str) -> Result<Date, String> {
    format!("{text}-01").parse().map_err(|_| "write a month like 2026-01".to_owned())
}

/// Creates the missing partitions of this month and the next ones, and returns their names.
pub(super) async fn create_partitions(database: &Database, months: i32) -> Result<Vec<String>> {
    let mut created = Vec::new();
    for month in months_from(&Zoned::now(), months)? {
        if database.create_partition(&month).await.map_err(failure)? {
            created.push(month.partition());
        }
    }
    Ok(created)
}

/// The months that `migrate` prepares.
pub(super) async fn create_usual_partitions(database: &Database) -> Result<()> {
    create_partitions(database, MONTHS).await.map(drop)
}

fn months_from(now: &Zoned, count: i32) -> Result<Vec<Month>> {
    let first = now.with_time_zone(TimeZone::UTC).date().first_of_month();
    (0..=count)
        .map(|number| {
            let (begin, end) =
                (first.checked_add(number.months())?, first.checked_add((number + 1).months())?);
            let (from_us, to_us) = (start_us(begin)?, start_us(end)?);
            Ok(Month { year: begin.year(), month: begin.month(), from_us, to_us })
        })
        .collect()
}

fn start_us(date: Date) -> Result<i64> {
    Ok(date.to_zoned(TimeZone::UTC)?.timestamp().as_microsecond())
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let before_us = args.drop_before.map(start_us).transpose()?;
    let this_month = start_us(Zoned::now().with_time_zone(TimeZone::UTC).date().first_of_month())?;
    if before_us.is_some_and(|before| before > this_month) {
        let hint = "entries of this month may still be voided or settled; pass this month or an earlier one";
        return Err(Failure::new("--drop-before is a month to come", hint).into());
    }
    block_on(async {
        let database = args.database.open().await?;
        let created = match args.dry_run {
            true => Vec::new(),
            false => create_partitions(&database, args.months).await?,
        };
        let dropped = match before_us {
            None => Dropped::default(),
            Some(before) if args.dry_run => database.count_old(before).await.map_err(refused)?,
            Some(before) => database.drop_old(before).await.map_err(refused)?,
        };
        let Dropped { entries, blocks, requests, reservations } = dropped;
        terminal::print(&match args.format {
            Format::Json => {
                let result = json!({
                    "dry_run": args.dry_run, "created": created,
                    "dropped": {
                        "entries": entries, "blocks": blocks, "requests": requests, "reservations": reservations,
                    },
                });
                format!("{result}\n")
            }
            Format::Text => {
                let verb = if args.dry_run { "would drop" } else { "dropped" };
                let mut text = match created.is_empty() {
                    true => String::new(),
                    false => format!("created {}\n", created.join(", ")),
                };
                text += &format!(
                    "{verb} {entries} entries in {blocks} blocks, {requests} request ids and {reservations} reservations\n"
                );
                text
            }
        })?;
        Ok(exit::SUCCESS)
    })
}

/// A ledger that is broken is not made smaller: what is dropped cannot be examined any more.
fn refused(error: Error) -> Failure {
    match error {
        Error::BlocksDiffer { .. } => {
            let hint = "nothing was dropped; `tollgate ledger verify` names the block, and a backup may have its entries";
            Failure::of_store(error.to_string(), hint)
        }
        error => failure(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn months_follow_each_other_without_a_gap_in_utc() {
        let now: Zoned = "2026-12-31T23:30:00-02:00[-02:00]".parse().expect("an instant");
        let months = months_from(&now, 2).expect("months");
        let names: Vec<String> = months.iter().map(Month::partition).collect();
        assert_eq!(names, ["entry_2027_01", "entry_2027_02", "entry_2027_03"]);
        assert!(months.windows(2).all(|pair| pair[0].to_us == pair[1].from_us));
        assert_eq!(months[0].from_us, 1_798_761_600_000_000);
        assert!(first_day("2026-13").is_err() && first_day("x").is_err());
    }
}
