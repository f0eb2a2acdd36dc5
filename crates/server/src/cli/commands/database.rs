//! Commands about the ledger and its database.

pub(crate) mod adopt;
pub(crate) mod change;
pub(crate) mod copy;
pub(crate) mod database_args;
pub(crate) mod export;
pub(crate) mod ledger;
mod pg_tools;
mod progress;
pub(crate) mod retain;
pub(crate) mod schema;
pub(crate) mod usage;
pub(crate) mod verify;

use clap::ValueEnum;
use tollgate::core::Time;
use tollgate_database::Filter;
use tollgate_database::ledger::Id;

use crate::cli::request_args::instant;
use crate::ledger_form::subject_id;

/// The form of the output.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Text,
    /// For programs
    Json,
}

// Not a doc comment: clap would use it as the help of every command with these arguments.
// Arguments that choose accounts.
#[derive(clap::Args)]
pub(crate) struct FilterArgs {
    /// Only this rule; NAMESPACE/RULE outside the namespace `default`
    #[arg(long, value_name = "ID")]
    rule: Option<String>,
    /// Only this subject, as keys show it
    #[arg(long, value_name = "SUBJECT", value_parser = subject_id)]
    subject: Option<Id>,
    /// Only accounts with this name, under rules with `ledger: { name: ATTRIBUTE }`
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Only periods that begin at this time or later
    #[arg(long, value_name = "TIME", value_parser = instant)]
    from: Option<Time>,
    /// Only periods that begin before this time
    #[arg(long, value_name = "TIME", value_parser = instant)]
    to: Option<Time>,
}

impl FilterArgs {
    fn filter(&self) -> Filter {
        Filter {
            rule: self.rule.clone(),
            subject: self.subject,
            name: self.name.clone(),
            from_us: self.from.map(microseconds),
            to_us: self.to.map(microseconds),
            posted_before_us: None,
        }
    }
}

fn microseconds(time: Time) -> i64 {
    i64::try_from(time.us()).unwrap_or(i64::MAX)
}
