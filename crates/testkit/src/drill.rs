//! Drills: load on a store in Redis while something is done to its servers, and an account of what came of it.
//!
//! Each drill prints its figures and judges nothing: who calls it says what is good enough.

mod failover;
mod load;
mod resharding;
mod stop;

pub use failover::{Failover, Fault, cluster_failover, control, sentinel_failovers};
pub use load::{Load, Tally};
pub use resharding::{Resharding, move_slots};
pub use stop::{Stopped, stop_for};

use std::error::Error;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

/// What may go wrong with a drill itself.
pub type DrillError = Box<dyn Error + Send + Sync>;

/// A runtime for the load.
pub fn runtime() -> Result<Runtime, DrillError> {
    Ok(Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

/// The middle one.
pub fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
