//! One picture per algorithm, in one file each.

pub(super) mod concurrency;
pub(super) mod fixed_window;
pub(super) mod leaky_bucket;
pub(super) mod meter;
pub(super) mod penalty;
pub(super) mod quota;
pub(super) mod sliding_log;
pub(super) mod sliding_window;
pub(super) mod token_bucket;
