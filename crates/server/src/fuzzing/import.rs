//! Configurations of other limiters.

use crate::cli::commands::rules::import::{Limiter, convert_bytes};

/// Imports any bytes as a configuration of each limiter. It is refused with a reason, or the rules are valid.
pub fn import(bytes: &[u8]) {
    for limiter in [Limiter::Envoy, Limiter::Limitador] {
        match convert_bytes(limiter, bytes) {
            Ok(rules) => assert!(rules.starts_with("# Converted from "), "{rules}"),
            // What was converted without a problem is valid, unless it is too large.
            Err(failure) => {
                assert!(!failure.contains("the rules are invalid") || bytes.len() > 100_000, "{failure}");
            }
        }
    }
}
