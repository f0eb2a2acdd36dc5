//! The algorithms, one file each: numbers, state and the pure step between them.
//!
//! A file here knows nothing of stores, clocks, keys or of the other algorithms.

pub mod bucket;
pub mod concurrency;
pub mod fixed_window;
pub mod machine;
pub mod meter;
pub mod penalty;
pub mod quota;
pub mod sliding_log;
pub mod sliding_window;
