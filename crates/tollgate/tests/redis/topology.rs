//! Sentinels and clusters.

mod fleet;
mod planned_failover;
