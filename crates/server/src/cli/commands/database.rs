//! Commands about the ledger and its database.

pub(crate) mod change;
pub(crate) mod database_args;
pub(crate) mod ledger;
pub(crate) mod schema;
pub(crate) mod verify;

use clap::ValueEnum;
use tollgate::core::Subject;
use tollgate_database::ledger::{Account, Id};

/// The form of the output.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Text,
    /// For programs
    Json,
}

/// The subject of an account as keys and logs show it.
fn subject_text(account: &Account) -> String {
    Subject::from_u128(u128::from_be_bytes(account.subject.id.0)).to_string()
}

fn subject_id(text: &str) -> Result<Id, String> {
    let subject: Subject = text.parse().map_err(|_| "write the 22 characters of a subject".to_owned())?;
    Ok(Id(subject.to_u128().to_be_bytes()))
}

/// An instant of the ledger, like 2026-12-01T00:00:00Z. 0 is a meter, which has no periods.
fn instant_text(us: i64) -> String {
    match jiff::Timestamp::from_microsecond(us) {
        Ok(_) if us == 0 => "-".to_owned(),
        Ok(at) => at.to_string(),
        Err(_) => us.to_string(),
    }
}
