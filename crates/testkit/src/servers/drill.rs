//! Drills: faults on Redis servers while the Redis store is under load.
//!
//! A drill returns its figures. The caller decides whether they are acceptable.

mod blast;
mod failover;
mod full;
mod holders;
mod key_scan;
mod layers;
mod ledger;
mod load;
mod pipeline;
mod planned;
mod rate_limit_client;
mod resharding;
mod returns;
mod stall;
mod stop;
mod upgrade;

pub use blast::{Answers, BYSTANDER_LIMIT, Blast, SlowStore, Transport, blast};
pub use failover::{Failover, Fault, cluster_failover, control, sentinel_failovers};
pub use full::{Full, fill_memory};
pub use holders::{Held, Holders, crashing_holders};
pub use key_scan::{KeyScan, key_scan};
pub use layers::{Layers, LayersRun, LoadFigures, Refusals, UsedUp, load_off_redis};
pub use ledger::{LedgerDrill, LedgerFault, LedgerFigures, LedgerPlace, ledger};
pub use load::{Load, Tally};
pub use pipeline::{Latency, PipelineTransport, Pipelined, pipeline_beside};
pub use planned::{Planned, planned_cluster_failovers, planned_sentinel_failovers};
pub use resharding::{Resharding, move_slots};
pub use returns::{Returns, retried_returns};
pub(crate) use stall::StallWatch;
pub use stop::{Stopped, stop_for};
pub use upgrade::{Upgraded, upgrade};

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
