//! How many connections there are, and that there are no more than may be.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::protocol::Protocol;
use crate::serve::observe::{Exposition, Kind};

/// Counts connections of all ports together.
pub(crate) struct Connections {
    most: u64,
    open: [AtomicU64; Protocol::ALL.len()],
    accepted: [AtomicU64; Protocol::ALL.len()],
    turned_away: [AtomicU64; Protocol::ALL.len()],
}

/// A connection's place, given back when it is dropped.
pub(crate) struct Place {
    connections: Arc<Connections>,
    protocol: Protocol,
}

impl Connections {
    pub(crate) fn new(most: usize) -> Connections {
        let zeros = || [const { AtomicU64::new(0) }; Protocol::ALL.len()];
        Connections { most: most as u64, open: zeros(), accepted: zeros(), turned_away: zeros() }
    }

    /// A place, if there is one left.
    pub(crate) fn enter(self: &Arc<Connections>, protocol: Protocol) -> Option<Place> {
        let number = protocol as usize;
        self.open[number].fetch_add(1, Ordering::Relaxed);
        let place = Place { connections: Arc::clone(self), protocol };
        if self.open() > self.most {
            self.turned_away[number].fetch_add(1, Ordering::Relaxed);
            return None;
        }
        self.accepted[number].fetch_add(1, Ordering::Relaxed);
        Some(place)
    }

    /// How many there are.
    pub(crate) fn open(&self) -> u64 {
        self.open.iter().map(|open| open.load(Ordering::Relaxed)).sum()
    }

    pub(crate) fn write(&self, page: &mut Exposition) {
        let families = [
            ("tollgate_connections", Kind::Gauge, "Connections that are open.", &self.open),
            (
                "tollgate_connections_accepted_total",
                Kind::Counter,
                "Connections that came in.",
                &self.accepted,
            ),
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

impl Drop for Place {
    fn drop(&mut self) {
        self.connections.open[self.protocol as usize].fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_no_more_than_may_be_and_places_come_back() {
        let connections = Arc::new(Connections::new(2));
        let first = connections.enter(Protocol::Http);
        let second = connections.enter(Protocol::Resp);
        assert!(first.is_some() && second.is_some());
        assert!(connections.enter(Protocol::Http).is_none());
        assert_eq!(connections.open(), 2);
        drop(first);
        assert!(connections.enter(Protocol::Resp).is_some());
    }
}
