//! Real Redis servers for tests: each a process of its own on a free port, gone when it is dropped.

mod admin;
mod certificates;
mod error;
mod flavour;
mod orphans;
pub(crate) mod ports;
mod process;
pub(crate) mod resp;
mod server;

pub use admin::Admin;
pub use certificates::Certificates;
pub use error::{AdminError, Error};
pub use flavour::Flavour;
pub use orphans::no_orphans;
pub use resp::{Malformed, Value};
pub use server::{Builder, Server};
