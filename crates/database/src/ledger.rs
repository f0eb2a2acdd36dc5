//! The ledger: which rows a batch of journaled records becomes.
//!
//! The rules are pure: they change [`Rows`] in memory. A database loads the rows under locks, and writes them back in the
//! same transaction. The module knows neither SQL nor files.

mod block;
mod posting;
mod record;
mod rows;

pub use block::{Block, Hash, chain};
pub use posting::{Posted, Settings, post};
pub use record::{
    Account, Change, Detail, Event, HoldState, Id, Kind, Record, Request, RequestState, Subject,
};
pub use rows::{Balance, Entry, Hold, Keys, RequestRow, Rows};
