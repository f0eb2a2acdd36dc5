//! Counts connections, and limits their number: in total, per client address, and on the control listener.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tollgate::core::{Cidr, Prefixes};

use crate::access::InFlight;
use crate::protocol::Protocol;
use crate::serve::observe::{Exposition, Kind};

/// Connections beyond the limit that can still ask for the health of the server.
const HEALTH_PLACES: u64 = 32;
/// Connections of the control listener. They do not count toward the limit of the others.
const CONTROL_PLACES: u64 = 64;
/// Connections of one address to the control listener.
const CONTROL_PLACES_PER_ADDRESS: u64 = 16;

/// The connections of all ports.
pub(crate) struct Connections {
    limits: ConnectionLimits,
    open: Counts,
    accepted: Counts,
    turned_away: Counts,
    over_share: Counts,
    /// The addresses with open connections.
    shares: Mutex<HashMap<(bool, Cidr), Arc<AddressShare>>>,
}

type Counts = [AtomicU64; Protocol::ALL.len()];

/// How many connections may be open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ConnectionLimits {
    pub(crate) max: u64,
    pub(crate) max_per_address: u64,
    /// The length of the address prefix that identifies a client.
    pub(crate) prefixes: Prefixes,
}

/// What the connections of one address use.
#[derive(Debug, Default)]
pub(crate) struct AddressShare {
    connections: AtomicU64,
    /// The calls of callers without a token that wait for the store.
    pub(crate) in_flight: Arc<InFlight>,
}

/// A counted connection. Dropping it makes room for another.
pub(crate) struct ConnectionPermit {
    connections: Arc<Connections>,
    protocol: Protocol,
    address: (bool, Cidr),
    pub(crate) share: Arc<AddressShare>,
    /// Its number among the connections of the protocol, from 1.
    pub(crate) number: u64,
    /// Whether it has one of the places for health checks only.
    pub(crate) is_for_health: bool,
}

impl Connections {
    pub(crate) fn new(limits: ConnectionLimits) -> Connections {
        let zeros = || [const { AtomicU64::new(0) }; Protocol::ALL.len()];
        Connections {
            limits,
            open: zeros(),
            accepted: zeros(),
            turned_away: zeros(),
            over_share: zeros(),
            shares: Mutex::default(),
        }
    }

    /// Counts a connection, if the limits allow it.
    pub(crate) fn admit(
        self: &Arc<Connections>,
        protocol: Protocol,
        from: IpAddr,
    ) -> Option<ConnectionPermit> {
        self.admit_with_share(protocol, from, self.max_per_address(protocol))
    }

    /// Counts a connection of a load balancer, which has no share: [`ConnectionPermit::identify`] names its client.
    pub(crate) fn admit_unidentified(
        self: &Arc<Connections>,
        protocol: Protocol,
        from: IpAddr,
    ) -> Option<ConnectionPermit> {
        self.admit_with_share(protocol, from, u64::MAX)
    }

    fn admit_with_share(
        self: &Arc<Connections>,
        protocol: Protocol,
        from: IpAddr,
        max_per_address: u64,
    ) -> Option<ConnectionPermit> {
        let number = protocol as usize;
        let is_control = protocol == Protocol::Admin;
        let (address, share) = self.take_share(protocol, from);
        self.open[number].fetch_add(1, Ordering::Relaxed);
        // Dropping the permit corrects the counts.
        let mut permit = ConnectionPermit {
            connections: Arc::clone(self),
            protocol,
            address,
            share,
            number: 0,
            is_for_health: false,
        };
        if permit.share.connections.load(Ordering::Relaxed) > max_per_address {
            self.over_share[number].fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let max = if is_control { CONTROL_PLACES } else { self.limits.max };
        let open = if is_control { self.open_of(Protocol::Admin) } else { self.open() };
        permit.is_for_health = protocol == Protocol::Http && open > max;
        if open > max && !(permit.is_for_health && open <= max + HEALTH_PLACES) {
            self.turned_away[number].fetch_add(1, Ordering::Relaxed);
            return None;
        }
        permit.number = 1 + self.accepted[number].fetch_add(1, Ordering::Relaxed);
        Some(permit)
    }

    fn max_per_address(&self, protocol: Protocol) -> u64 {
        if protocol == Protocol::Admin { CONTROL_PLACES_PER_ADDRESS } else { self.limits.max_per_address }
    }

    /// Counts a connection in the share of its address.
    fn take_share(&self, protocol: Protocol, from: IpAddr) -> ((bool, Cidr), Arc<AddressShare>) {
        let address = (protocol == Protocol::Admin, self.limits.prefixes.block(from));
        let mut shares = self.shares.lock();
        let share = Arc::clone(shares.entry(address).or_default());
        // Under the lock, so that the share is not removed meanwhile.
        share.connections.fetch_add(1, Ordering::Relaxed);
        (address, share)
    }

    fn return_share(&self, address: &(bool, Cidr), share: &AddressShare) {
        let mut shares = self.shares.lock();
        // Under the lock, so that no connection takes the share while it is removed.
        if share.connections.fetch_sub(1, Ordering::Relaxed) == 1 {
            shares.remove(address);
        }
    }

    /// The number of open connections, without those of the control listener.
    pub(crate) fn open(&self) -> u64 {
        let open = Protocol::ALL.into_iter().filter(|protocol| *protocol != Protocol::Admin);
        open.map(|protocol| self.open_of(protocol)).sum()
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
            (
                "tollgate_connections_over_share_total",
                Kind::Counter,
                "Connections that were closed at once because their address had too many.",
                &self.over_share,
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

impl ConnectionPermit {
    /// Counts the connection for its client instead of the load balancer. Returns whether the client's share allows it.
    pub(crate) fn identify(&mut self, client: IpAddr) -> bool {
        let (address, share) = self.connections.take_share(self.protocol, client);
        self.connections.return_share(&self.address, &self.share);
        (self.address, self.share) = (address, share);
        let max = self.connections.max_per_address(self.protocol);
        let is_within = self.share.connections.load(Ordering::Relaxed) <= max;
        if !is_within {
            self.connections.over_share[self.protocol as usize].fetch_add(1, Ordering::Relaxed);
        }
        is_within
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.connections.open[self.protocol as usize].fetch_sub(1, Ordering::Relaxed);
        self.connections.return_share(&self.address, &self.share);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn connections(max: u64, max_per_address: u64) -> Arc<Connections> {
        let prefixes = Prefixes::default();
        Arc::new(Connections::new(ConnectionLimits { max, max_per_address, prefixes }))
    }

    fn address(last: u8) -> IpAddr {
        Ipv4Addr::new(192, 0, 2, last).into()
    }

    #[test]
    fn connections_are_limited_and_a_closed_one_makes_room() {
        let connections = connections(2, 2);
        let first = connections.admit(Protocol::Resp, address(1));
        let second = connections.admit(Protocol::Grpc, address(2));
        assert!(first.is_some() && second.is_some());
        assert!(connections.admit(Protocol::Resp, address(3)).is_none());
        assert_eq!(connections.open(), 2);
        drop(first);
        assert!(connections.admit(Protocol::Resp, address(3)).is_some());
    }

    #[test]
    fn one_address_gets_its_share_on_all_listeners_together() {
        let connections = connections(8, 2);
        let held: Vec<_> = [Protocol::Http, Protocol::Resp]
            .map(|protocol| connections.admit(protocol, address(1)).expect("it is within the share"))
            .into();
        for protocol in [Protocol::Http, Protocol::Resp, Protocol::Grpc] {
            assert!(connections.admit(protocol, address(1)).is_none());
            assert!(connections.admit(protocol, address(2)).is_some(), "another address has its own share");
        }
        drop(held);
        assert!(connections.admit(Protocol::Grpc, address(1)).is_some());
        assert!(connections.shares.lock().is_empty(), "an address without connections takes no memory");
    }

    #[test]
    fn connections_of_a_load_balancer_count_for_their_clients() {
        let connections = connections(8, 2);
        let from = |client: u8| {
            let mut permit = connections
                .admit_unidentified(Protocol::Resp, address(9))
                .expect("a load balancer has no share");
            permit.identify(address(client)).then_some(permit)
        };
        let held: Vec<_> = [1, 1, 2, 2].map(|client| from(client).expect("it is within the share")).into();
        assert!(from(1).is_none() && from(2).is_none());
        assert!(from(3).is_some(), "another client has its own share");
        assert!(connections.admit(Protocol::Http, address(1)).is_none(), "with or without a load balancer");
        drop(held);
        assert!(from(1).is_some());
        assert!(connections.shares.lock().is_empty(), "an address without connections takes no memory");
    }

    #[test]
    fn a_full_server_keeps_places_for_health_checks_and_control() {
        let connections = connections(4, 1_000);
        let _all: Vec<_> = (0..4).map(|_| connections.admit(Protocol::Resp, address(1))).collect();
        let mut kept = Vec::new();
        while let Some(permit) = connections.admit(Protocol::Http, address(1)) {
            assert!(permit.is_for_health);
            kept.push(permit);
        }
        assert_eq!(kept.len() as u64, HEALTH_PLACES);
        assert!(connections.admit(Protocol::Grpc, address(2)).is_none());
        let control = connections.admit(Protocol::Admin, address(2)).expect("control has its own places");
        assert!(!control.is_for_health);
    }
}
