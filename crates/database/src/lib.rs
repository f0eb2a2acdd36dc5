//! The durable ledger of Tollgate, on SQLite or PostgreSQL.
//!
//! - [`DatabaseUrl`] and [`Database`]: open, migrate, and post batches exactly once.
//! - [`ledger`]: what a batch changes, without any SQL.

mod database;
mod error;
pub mod ledger;
mod migrations;
mod postgres;
mod sql;
mod sqlite;
mod transaction;
mod url;

pub use database::Database;
pub use error::Error;
pub use migrations::Status;
pub use transaction::{Batch, Receipt, Unbalanced};
pub use url::{DatabaseUrl, UrlError};
