//! The Redis store on real servers. Every test starts separate servers.

mod after_the_fact;
mod common;
mod connections;
mod contender;
mod corrupt_state;
mod fleet;
mod footprint;
mod full;
mod holders;
mod long_logs;
mod losses;
mod out_of_memory;
mod planned_failover;
mod plans;
mod refusal_memory;
mod reservation_states;
mod store_time;
mod tls;
