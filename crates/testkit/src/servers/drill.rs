//! Drills: faults on Redis servers while the Redis store is under load.
//!
//! A drill returns its figures. The caller decides whether they are acceptable.

mod failover;
mod full;
mod load;
mod planned;
mod resharding;
mod stop;

pub use failover::{Failover, Fault, cluster_failover, control, sentinel_failovers};
pub use full::{Full, fill_memory};
pub use load::{Load, Tally};
pub use planned::{Planned, planned_cluster_failovers, planned_sentinel_failovers};
pub use resharding::{Resharding, move_slots};
pub use stop::{Stopped, stop_for};

use std::error::Error;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

/// A failure of the drill itself.
pub type DrillError = Box<dyn Error + Send + Sync>;

/// Creates a runtime for the load.
pub fn runtime() -> Result<Runtime, DrillError> {
    Ok(Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

/// Returns the median.
pub fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
