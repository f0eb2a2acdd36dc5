//! The Redis store on real servers. Every test starts separate servers.

mod anonymous;
mod common;
mod connections;
mod contender;
mod faults;
mod moments;
mod operations;
mod refusal_memory;
mod shards;
mod slices;
mod state;
mod tls;
mod topology;
