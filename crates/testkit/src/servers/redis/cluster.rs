//! A cluster of three primaries with one replica each.

mod builder;
mod known;
mod slot;
mod slot_move;

use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::admin::Admin;
use super::admin::orphans::no_orphans;
use super::certificates::Certificates;
use super::error::{AdminError, Error};
use super::flavour::Flavour;
use super::node::{Cut, Node};
use super::role::{ANSWER_MAX, PAUSE, Role, RoleWatch, wait_caught_up};
use super::sentinel::Promotion;
use super::server::Server;
use super::wait::{NotYet, until};
use crate::fault_proxy::FaultProxy;

pub use builder::ClusterBuilder;
use known::Known;
pub use slot::{SLOTS, slot_of};
pub use slot_move::SlotMove;

/// Longest time without an owner of a slot.
const OWNER_MAX: Duration = Duration::from_secs(5);

/// Pause between polls for whether a node knows the claims of the others.
const HEARD_PAUSE: Duration = Duration::from_millis(2);

const PRIMARIES: usize = 3;
const NODES: usize = 2 * PRIMARIES;

/// Deadline for all nodes to agree. A primary does not serve in the first two seconds after its start.
const SETTLE_MAX: Duration = Duration::from_secs(40);
const SETTLE_PAUSE: Duration = Duration::from_millis(20);

/// Number of keys moved per step.
const KEYS_PER_MOVE: usize = 100;

/// A cluster on 127.0.0.1. Dropping it kills all servers.
///
/// At first, nodes 0 to 2 are the primaries, and node `i + 3` is the replica of node `i`. After a restart a node still
/// knows the cluster, but has no data.
#[derive(Debug)]
pub struct Cluster {
    options: ClusterBuilder,
    nodes: Vec<Node>,
    /// The node ids. A node keeps its id.
    ids: Vec<String>,
    certificates: Option<(Certificates, TempDir)>,
}

impl Cluster {
    /// Starts a cluster without passwords and waits until it is settled.
    pub fn start(flavour: Flavour) -> Result<Cluster, Error> {
        Cluster::builder(flavour).start()
    }

    /// Returns a builder for a cluster with other options.
    pub fn builder(flavour: Flavour) -> ClusterBuilder {
        ClusterBuilder::new(flavour)
    }

    /// Returns the URL of the nodes, with the password if there is one.
    pub fn url(&self) -> String {
        let password = self.options.password.as_ref();
        let credentials = password.map(|password| format!(":{password}@")).unwrap_or_default();
        let hosts: Vec<String> = self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        let (scheme, query) = match self.certificates() {
            Some(certificates) => ("rediss", format!("?ca={}", certificates.authority().display())),
            None => ("redis", String::new()),
        };
        format!("{scheme}+cluster://{credentials}{}{query}", hosts.join(","))
    }

    /// Returns the certificates of all nodes, if they have TLS.
    pub fn certificates(&self) -> Option<&Certificates> {
        self.certificates.as_ref().map(|(certificates, _)| certificates)
    }

    /// Returns the number of nodes.
    pub fn count(&self) -> usize {
        self.nodes.len()
    }

    /// Returns a node.
    pub fn node(&self, node: usize) -> &Server {
        &self.nodes[node].server
    }

    /// Returns the port of this node for clients, which is also used in redirections.
    pub fn node_port(&self, node: usize) -> u16 {
        self.nodes[node].port()
    }

    /// Returns the node with this port, as in redirections.
    pub fn node_on(&self, port: u16) -> Option<usize> {
        self.nodes.iter().position(|node| node.port() == port)
    }

    /// Returns the id of a node in the cluster.
    pub fn node_id(&self, node: usize) -> &str {
        &self.ids[node]
    }

    /// Opens a connection to a node for the test itself, bypassing its proxy.
    pub fn admin(&self, node: usize) -> Result<Admin, AdminError> {
        self.node(node).admin()
    }

    /// Returns the primary that owns the slot. If two claim it, the one with the newer claim.
    pub fn owner(&self, slot: u16) -> Result<usize, Error> {
        // A busy node may not answer in time, and right after a move no node may claim the slot.
        let until = Instant::now() + OWNER_MAX;
        loop {
            let claims = self.self_reports().into_iter().filter(|(_, known)| known.owns(slot));
            match claims.max_by_key(|(_, known)| known.epoch) {
                Some((node, _)) => return Ok(node),
                None if Instant::now() < until => std::thread::sleep(Duration::from_millis(5)),
                None => {
                    return Err(Error::NoServer(format!(
                        "owner of slot {slot}: {}",
                        self.describe_owners(slot)
                    )));
                }
            }
        }
    }

    /// Waits until a node knows the epochs of all other nodes.
    fn wait_for_epochs(&self, node: usize) -> Result<(), Error> {
        until("claims heard of", OWNER_MAX, HEARD_PAUSE, || {
            let view = self.view(node)?;
            self.self_reports().into_iter().try_for_each(|(other, own)| {
                let heard = view.iter().any(|known| known.id == own.id && known.epoch == own.epoch);
                let news = format!("epoch {} of node {other} has not come to node {node}", own.epoch);
                if heard { Ok(()) } else { Err(NotYet(news)) }
            })
        })
    }

    /// Describes which owner of a slot each node knows, and the epoch of that claim. For error messages.
    fn describe_owners(&self, slot: u16) -> String {
        let owners = (0..self.nodes.len()).map(|node| {
            let view = self.view(node).unwrap_or_default();
            let owner = view.iter().find(|known| known.owns(slot));
            let at = owner.and_then(|owner| self.ids.iter().position(|id| *id == owner.id));
            format!("node {node} names {at:?} with epoch {:?}", owner.map(|owner| owner.epoch))
        });
        owners.collect::<Vec<_>>().join(", ")
    }

    /// Returns the nodes that report to be primaries.
    pub fn primaries(&self) -> Vec<usize> {
        self.self_reports()
            .into_iter()
            .filter(|(_, known)| known.primary.is_none())
            .map(|(node, _)| node)
            .collect()
    }

    /// Returns a node that reports to be a replica of this one, which may be dead.
    pub fn replica_of(&self, primary: usize) -> Result<usize, Error> {
        let id = Some(&self.ids[primary]);
        let replica = self.self_reports().into_iter().find(|(_, known)| known.primary.as_ref() == id);
        let replica = replica.map(|(node, _)| node);
        replica.ok_or_else(|| Error::NoServer(format!("replica of node {primary}")))
    }

    /// Kills a node, like a power failure.
    pub fn kill9(&mut self, node: usize) -> Result<(), Error> {
        self.nodes[node].server.kill9()
    }

    /// Stops the process of a node.
    pub fn stop(&self, node: usize) -> Result<(), Error> {
        self.node(node).stop()
    }

    /// Resumes a stopped node.
    pub fn resume(&self, node: usize) -> Result<(), Error> {
        self.node(node).resume()
    }

    /// Restarts a node without data. It still knows the cluster, and the cluster knows it.
    pub fn restart(&mut self, node: usize) -> Result<(), Error> {
        self.nodes[node].server.restart()
    }

    /// Returns the proxy in front of a node, if the builder added one.
    pub fn proxy(&self, node: usize) -> Result<&FaultProxy, Error> {
        self.nodes[node].proxy()
    }

    /// Cuts a node off from clients and replicas. The cluster bus still works, so no failover happens.
    pub fn partition(&self, node: usize, cut: Cut) -> Result<(), Error> {
        self.nodes[node].partition(cut)
    }

    /// Ends the partition, and closes the connections through it.
    pub fn heal(&self, node: usize) -> Result<(), Error> {
        self.nodes[node].heal()
    }

    /// Promotes a replica while its primary is healthy, and waits until all running nodes know it.
    pub fn failover(&self, replica: usize) -> Result<Promotion, Error> {
        self.admin(replica)?.command(&[b"CLUSTER", b"FAILOVER"])?;
        let promotion = self.wait_promoted(replica, SETTLE_MAX)?;
        until("primary for all nodes", SETTLE_MAX, SETTLE_PAUSE, || {
            self.running().try_for_each(|node| {
                match self.view(node)?.iter().find(|known| known.id == self.ids[replica]) {
                    Some(known) if known.primary.is_none() && !known.slots.is_empty() => Ok(()),
                    known => Err(NotYet(format!("node {node} knows {known:?}"))),
                }
            })
        })?;
        Ok(promotion)
    }

    /// Waits until this replica reports to be a primary.
    pub fn wait_promoted(&self, replica: usize, within: Duration) -> Result<Promotion, Error> {
        let mut watch = RoleWatch::new(self.node(replica));
        until("promoted", within, PAUSE, || match watch.role()? {
            Role::Primary { .. } => Ok(Promotion { node: replica, at: Instant::now() }),
            role => Err(NotYet(format!("{role:?}"))),
        })
    }

    /// Waits until all nodes run, agree on all owners, see each other as healthy, cover all slots and serve, and every
    /// replica is linked to its primary.
    pub fn wait_settled(&self) -> Result<(), Error> {
        until("settled", SETTLE_MAX, SETTLE_PAUSE, || {
            let first = self.healthy_view(0)?;
            for node in 1..self.nodes.len() {
                let view = self.healthy_view(node)?;
                if view.iter().map(Known::part).ne(first.iter().map(Known::part)) {
                    return Err(NotYet(format!("node {node} knows {view:?}, node 0 {first:?}")));
                }
            }
            (0..self.nodes.len()).try_for_each(|node| self.check_role(node, &first))
        })
    }

    /// Waits until the replica of every primary has all writes up to now.
    pub fn wait_replicas_in_sync(&self) -> Result<(), Error> {
        for primary in self.primaries() {
            let Role::Primary { offset: written, .. } = self.role(primary)? else {
                return Err(Error::NoServer(format!("primary on node {primary} any more")));
            };
            wait_caught_up(self.node(self.replica_of(primary)?), written, SETTLE_MAX)?;
        }
        Ok(())
    }

    /// Moves a slot with all its keys to another primary, in the same steps as redis-cli.
    pub fn move_slot(&self, slot: u16, to: usize) -> Result<(), Error> {
        let slot_move = self.begin_move(slot, to)?;
        while slot_move.migrate(KEYS_PER_MOVE)? > 0 {}
        slot_move.finish()
    }

    /// Starts to move a slot. From now on its owner redirects with ASK for keys that it does not have.
    pub fn begin_move(&self, slot: u16, to: usize) -> Result<SlotMove<'_>, Error> {
        SlotMove::begin(self, slot, to)
    }

    /// Runs [`no_orphans`] on every primary and returns the number of all keys.
    pub fn no_orphans(&self, prefix: &str, ttl_max: Duration, subjects: &[&str]) -> Result<usize, String> {
        let primaries = self.primaries().into_iter();
        let found = primaries.map(|node| {
            let mut admin = self.admin(node).map_err(|error| format!("cannot ask node {node}: {error}"))?;
            no_orphans(&mut admin, prefix, ttl_max, subjects).map_err(|error| format!("node {node}: {error}"))
        });
        found.sum()
    }

    fn running(&self) -> impl Iterator<Item = usize> {
        (0..self.nodes.len()).filter(|&node| self.node(node).is_running())
    }

    fn role(&self, node: usize) -> Result<Role, Error> {
        Ok(Role::of(&mut self.node(node).admin_within(ANSWER_MAX)?)?)
    }

    /// Returns the nodes that a node knows, sorted by id.
    fn view(&self, node: usize) -> Result<Vec<Known>, Error> {
        Ok(Known::all(&mut self.node(node).admin_within(ANSWER_MAX)?)?)
    }

    /// Returns what each answering node reports about itself.
    fn self_reports(&self) -> Vec<(usize, Known)> {
        let own = |node| {
            let view = self.view(node).ok()?;
            Some((node, view.into_iter().find(Known::is_itself)?))
        };
        (0..self.nodes.len()).filter_map(own).collect()
    }

    fn healthy_view(&self, node: usize) -> Result<Vec<Known>, NotYet> {
        let mut admin = self.node(node).admin_within(ANSWER_MAX)?;
        let info = known::info(&mut admin)?;
        let view = Known::all(&mut admin)?;
        let slots: usize = view.iter().flat_map(|known| &known.slots).map(|range| range.len()).sum();
        let sane = info.contains("cluster_state:ok")
            && view.len() == self.nodes.len()
            && view.iter().all(Known::is_healthy)
            && slots == usize::from(SLOTS);
        if sane { Ok(view) } else { Err(NotYet(format!("node {node} says {info:?} and knows {view:?}"))) }
    }

    /// Checks that the role of a node is the one that others know.
    fn check_role(&self, node: usize, view: &[Known]) -> Result<(), NotYet> {
        let known = view.iter().find(|known| known.id == self.ids[node]);
        let primary = known.and_then(|known| known.primary.as_ref());
        let wanted = primary.and_then(|id| self.ids.iter().position(|other| other == id));
        let role = self.role(node)?;
        match (&role, wanted) {
            (Role::Replica { primary, connected: true, .. }, Some(wanted))
                if *primary == self.node_port(wanted) =>
            {
                Ok(())
            }
            (Role::Primary { replicas, .. }, None) if !replicas.is_empty() => Ok(()),
            _ => Err(NotYet(format!("node {node} is {role:?}, known as {known:?}"))),
        }
    }
}
