//! Real Redis servers for tests: each a process of its own on a free port, gone when it is dropped. Alone,
//! watched by sentinels, or as a cluster.

mod admin;
mod certificates;
mod cluster;
mod config_file;
mod error;
mod flavour;
mod node;
mod orphans;
pub(crate) mod ports;
mod process;
pub(crate) mod resp;
mod role;
mod sentinel;
mod server;
mod wait;

pub use admin::Admin;
pub use certificates::Certificates;
pub use cluster::{Cluster, ClusterBuilder, SLOTS, SlotMove, slot_of};
pub use error::{AdminError, Error};
pub use flavour::Flavour;
pub use node::Cut;
pub use orphans::no_orphans;
pub use resp::{Malformed, Value};
pub use sentinel::{Promotion, SentinelBuilder, SentinelSet};
pub use server::{Builder, Server};
