//! Ports for servers and proxies of tests.

use std::process;
use std::sync::atomic::{AtomicU16, Ordering};

/// From here on the system hands out ports for outgoing connections. A server that is restarted there may find
/// its port taken, and a client that connects to a port there, while nobody listens, may connect to itself.
const END: u16 = 32_768;
const START: u16 = 12_288;

/// How many ports a server tries before it gives up.
pub(crate) const TRIES: usize = 64;

/// A port that this process has not asked for lately, and that others probably do not use.
pub(crate) fn next() -> u16 {
    static COUNT: AtomicU16 = AtomicU16::new(0);
    // Test programs that run at once begin far apart.
    let begin = process::id().wrapping_mul(61);
    let offset = begin.wrapping_add(COUNT.fetch_add(1, Ordering::Relaxed).into()) % u32::from(END - START);
    START + offset as u16
}
