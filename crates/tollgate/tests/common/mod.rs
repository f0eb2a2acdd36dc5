//! Helpers that several test targets share.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test target uses a part of it; fuzz targets use `properties`"
)]

pub(crate) mod blessing;
pub(crate) mod files;
pub(crate) mod hot_path_rules;
pub(crate) mod mutation;
pub(crate) mod properties;
