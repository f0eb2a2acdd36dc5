//! The Redis store on real servers. Every test starts separate servers.

mod common;
mod connections;
mod contender;
mod faults;
mod operations;
mod refusal_memory;
mod slices;
mod state;
mod tls;
mod topology;
