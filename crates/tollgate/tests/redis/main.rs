//! The Redis store on real servers. Every test starts separate servers.

mod common;
mod connections;
mod contender;
mod corrupt_state;
mod fleet;
mod footprint;
mod full;
mod long_logs;
mod losses;
mod out_of_memory;
mod planned_failover;
mod plans;
mod store_time;
mod tls;
