//! Ports for servers and proxies of tests.

use std::process;
use std::sync::atomic::{AtomicU16, Ordering};

/// From here on the system hands out ports for outgoing connections. A server that is restarted there may find
/// its port taken, and a client that connects to a port there, while nobody listens, may connect to itself.
const END: u16 = 32_768;
const START: u16 = 12_288;

/// Nodes of a cluster have a range of their own, and so have their buses, which are not theirs to choose.
const NODES: u16 = 10_240;
const BUS: u16 = 10_000;
const NODES_LEN: u16 = START - NODES;

/// How many ports a server tries before it gives up.
pub(crate) const TRIES: usize = 64;

/// A port that this process has not asked for lately, and that others probably do not use.
pub(crate) fn next() -> u16 {
    static COUNT: AtomicU16 = AtomicU16::new(0);
    let port = START + turn(&COUNT, END - START - NODES_LEN);
    if port < NODES + BUS { port } else { port + NODES_LEN }
}

/// The same, where the port for the bus of a cluster, 10,000 further on, is as free.
pub(crate) fn next_with_bus() -> u16 {
    static COUNT: AtomicU16 = AtomicU16::new(0);
    NODES + turn(&COUNT, NODES_LEN)
}

/// Goes round from a place that test programs which run at once have far apart.
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
