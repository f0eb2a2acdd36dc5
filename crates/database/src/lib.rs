//! The database of Tollgate, on SQLite or PostgreSQL: the ledger, live changes and the audit trail.
//!
//! - [`DatabaseUrl`] and [`Database`]: open, migrate, and post batches exactly once.
//! - [`ledger`]: what a batch changes, without any SQL.
//! - [`changes`], [`audit`]: live changes over the rules file, and who made them.
//! - [`journal`]: records on a local disk before their answers are given.
//! - [`LedgerWriter`]: this process as a writer: its journal, and the task that posts it to the database.

pub mod audit;
mod calls;
pub mod changes;
mod database;
mod error;
mod gate;
pub mod journal;
pub mod ledger;
mod migrations;
mod names;
mod postgres;
mod reports;
mod retention;
mod shipper;
mod sql;
mod sqlite;
mod transaction;
mod url;
mod verification;
mod writer;

pub use calls::{Clock, OpenCall};
pub use database::Database;
pub use error::Error;
pub use gate::{ACCOUNTS_MAX, KnownAccount, Look, OpenWriter};
pub use migrations::Status;
pub use reports::{Filter, PostedEntry, Usage, Writer};
pub use retention::{Dropped, Month, Partition};
pub use shipper::Adopted;
pub use transaction::{Batch, Receipt, Unbalanced};
pub use url::{DatabaseUrl, UrlError};
pub use verification::Verified;
pub use writer::{Bound, LedgerWriter, Outage, WhenDown, WriterSettings, WriterStatus};
