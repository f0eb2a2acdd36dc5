//! The algorithms, one file each: limits, state, and the pure step from one state to the next.
//!
//! Each file starts with the algorithm's contract: its guarantee, its state with units, when it admits, the instant it
//! returns for a retry, and when a key may expire. No file here knows stores, clocks, keys or other algorithms.

pub mod bucket;
pub mod bucket_ring;
pub mod concurrency;
pub mod fixed_window;
pub mod hold_sums;
pub mod machine;
pub mod meter;
pub mod penalty;
pub mod quota;
pub mod sliding_log;
pub mod sliding_window;
