//! Chooses ports for servers and proxies of tests.

use std::process;
use std::sync::atomic::{AtomicU16, Ordering};

/// First port that the system uses for outgoing connections. A restarted server could find such a port taken, and a client
/// that connects to one without a listener could connect to itself.
const END: u16 = 32_768;
const START: u16 = 12_288;

/// Start of the range for cluster nodes. The port of a node's bus is derived from its own and has a separate range.
const NODES: u16 = 10_240;
const BUS: u16 = 10_000;
const NODES_LEN: u16 = START - NODES;

/// Number of ports that a server tries before it gives up.
pub(crate) const TRIES: usize = 64;

/// Returns a port that this process has not used lately and that other processes probably do not use.
pub(crate) fn next() -> u16 {
    static COUNT: AtomicU16 = AtomicU16::new(0);
    let port = START + turn(&COUNT, END - START - NODES_LEN);
    if port < NODES + BUS { port } else { port + NODES_LEN }
}

/// Like [`next`], but the port of the cluster bus, which is 10,000 higher, is free as well.
pub(crate) fn next_with_bus() -> u16 {
    static COUNT: AtomicU16 = AtomicU16::new(0);
    NODES + turn(&COUNT, NODES_LEN)
}

/// Starts at an offset that differs between test programs that run at the same time.
fn turn(count: &AtomicU16, len: u16) -> u16 {
    let begin = process::id().wrapping_mul(61);
    let offset = begin.wrapping_add(count.fetch_add(1, Ordering::Relaxed).into()) % u32::from(len);
    offset as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_server_gets_the_port_of_a_bus() {
        let buses = NODES + BUS..START + BUS;
        for _ in 0..END {
            let port = next();
            assert!((START..END).contains(&port) && !buses.contains(&port), "{port}");
            let node = next_with_bus();
            assert!((NODES..START).contains(&node) && buses.contains(&(node + BUS)), "{node}");
        }
    }
}
