//! Counts connections and limits their number.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::protocol::Protocol;
use crate::serve::observe::{Exposition, Kind};

/// The connections of all ports.
pub(crate) struct Connections {
    max: u64,
    open: [AtomicU64; Protocol::ALL.len()],
    accepted: [AtomicU64; Protocol::ALL.len()],
    turned_away: [AtomicU64; Protocol::ALL.len()],
}

/// A counted connection. Dropping it makes room for another.
pub(crate) struct ConnectionPermit {
    connections: Arc<Connections>,
    protocol: Protocol,
    /// Its number among the connections of the protocol, from 1.
    pub(crate) number: u64,
}

impl Connections {
    pub(crate) fn new(max: usize) -> Connections {
        let zeros = || [const { AtomicU64::new(0) }; Protocol::ALL.len()];
        Connections { max: max as u64, open: zeros(), accepted: zeros(), turned_away: zeros() }
    }

    /// Counts a connection, if the limit allows it.
    pub(crate) fn admit(self: &Arc<Connections>, protocol: Protocol) -> Option<ConnectionPermit> {
        let number = protocol as usize;
        self.open[number].fetch_add(1, Ordering::Relaxed);
        let mut permit = ConnectionPermit { connections: Arc::clone(self), protocol, number: 0 };
        if self.open() > self.max {
            self.turned_away[number].fetch_add(1, Ordering::Relaxed);
            return None;
        }
        permit.number = 1 + self.accepted[number].fetch_add(1, Ordering::Relaxed);
        Some(permit)
    }

    /// The number of open connections.
    pub(crate) fn open(&self) -> u64 {
        self.open.iter().map(|open| open.load(Ordering::Relaxed)).sum()
    }

    /// The number of open connections of a protocol.
    pub(crate) fn open_of(&self, protocol: Protocol) -> u64 {
        self.open[protocol as usize].load(Ordering::Relaxed)
    }

    /// The number of connections of a protocol since the start.
    pub(crate) fn accepted_of(&self, protocol: Protocol) -> u64 {
        self.accepted[protocol as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn write(&self, page: &mut Exposition) {
        let families = [
            ("tollgate_connections", Kind::Gauge, "Open connections.", &self.open),
            ("tollgate_connections_accepted_total", Kind::Counter, "Accepted connections.", &self.accepted),
            (
                "tollgate_connections_turned_away_total",
                Kind::Counter,
                "Connections that were closed at once because there were too many.",
                &self.turned_away,
            ),
        ];
        for (name, kind, help, counts) in families {
            let mut family = page.family(name, kind, help);
            for protocol in Protocol::ALL {
                let count = counts[protocol as usize].load(Ordering::Relaxed);
                family.sample(&[("protocol", protocol.name())], count);
            }
        }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.connections.open[self.protocol as usize].fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_limited_and_a_closed_one_makes_room() {
        let connections = Arc::new(Connections::new(2));
        let first = connections.admit(Protocol::Http);
        let second = connections.admit(Protocol::Resp);
        assert!(first.is_some() && second.is_some());
        assert!(connections.admit(Protocol::Http).is_none());
        assert_eq!(connections.open(), 2);
        drop(first);
        assert!(connections.admit(Protocol::Resp).is_some());
    }
}
