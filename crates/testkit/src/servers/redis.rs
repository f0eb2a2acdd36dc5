//! Real Redis servers for tests: single servers, sets with sentinels, and clusters. Each server is a separate process on a
//! free port, which is killed when its value is dropped.

pub(crate) mod admin;
mod certificates;
mod cluster;
mod error;
mod flavour;
mod node;
mod role;
mod sentinel;
mod server;
mod wait;

pub use admin::Admin;
pub use admin::orphans::no_orphans;
pub use admin::resp::{Malformed, Value};
pub use certificates::Certificates;
pub use cluster::{Cluster, ClusterBuilder, SLOTS, SlotMove, slot_of};
pub use error::{AdminError, Error};
pub use flavour::Flavour;
pub use node::Cut;
pub use sentinel::{Promotion, SentinelBuilder, SentinelSet};
pub use server::{Builder, Server};
