//! The Redis servers for tests: single servers, sets with sentinels, and clusters.

mod layers;
mod standalone;
mod topologies;
