//! A cluster of three primaries with a replica each.

mod builder;
mod known;
mod slot;
mod slot_move;

use std::time::{Duration, Instant};

use super::admin::Admin;
use super::error::{AdminError, Error};
use super::flavour::Flavour;
use super::node::{Cut, Node};
use super::orphans::no_orphans;
use super::role::{ANSWER_MAX, PAUSE, Role, RoleWatch, wait_caught_up};
use super::sentinel::Promotion;
use super::server::Server;
use super::wait::{NotYet, until};
use crate::fault_proxy::FaultProxy;

pub use builder::ClusterBuilder;
use known::Known;
pub use slot::{SLOTS, slot_of};
pub use slot_move::SlotMove;

/// How long a slot may be without an owner.
const OWNER_MAX: Duration = Duration::from_secs(5);

/// How often it is asked whether a node has heard of the others' claims.
const HEARD_PAUSE: Duration = Duration::from_millis(2);

const PRIMARIES: usize = 3;
const NODES: usize = 2 * PRIMARIES;

/// How long all nodes may take to agree. A primary that starts does not serve for its first two seconds.
const SETTLE_MAX: Duration = Duration::from_secs(40);
const SETTLE_PAUSE: Duration = Duration::from_millis(20);

/// How many keys are moved at once.
const KEYS_PER_MOVE: usize = 100;

/// Servers on 127.0.0.1, all killed when it is dropped.
///
/// Nodes 0 to 2 are the primaries at first, and node `i + 3` is the replica of node `i`. Nodes keep what they
/// know of the cluster over a restart, and no data.
#[derive(Debug)]
pub struct Cluster {
    options: ClusterBuilder,
    nodes: Vec<Node>,
    /// What the nodes call each other. A node keeps its id for life.
    ids: Vec<String>,
}

impl Cluster {
    /// Starts a cluster without passwords, and waits until it is settled.
    pub fn start(flavour: Flavour) -> Result<Cluster, Error> {
        Cluster::builder(flavour).start()
    }

    /// A cluster with more to it.
    pub fn builder(flavour: Flavour) -> ClusterBuilder {
        ClusterBuilder::new(flavour)
    }

    /// Where clients reach the nodes, with the password if there is one.
    pub fn url(&self) -> String {
        let password = self.options.password.as_ref();
        let credentials = password.map(|password| format!(":{password}@")).unwrap_or_default();
        let hosts: Vec<String> = self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        format!("redis+cluster://{credentials}{}", hosts.join(","))
    }

    /// How many nodes there are.
    pub fn count(&self) -> usize {
        self.nodes.len()
    }

    /// A node.
    pub fn node(&self, node: usize) -> &Server {
        &self.nodes[node].server
    }

    /// Where clients reach this node, and where the others redirect them to.
    pub fn node_port(&self, node: usize) -> u16 {
        self.nodes[node].port()
    }

    /// The node on this port, as redirections name it.
    pub fn node_on(&self, port: u16) -> Option<usize> {
        self.nodes.iter().position(|node| node.port() == port)
    }

    /// A connection to a node for the test itself, past its proxy.
    pub fn admin(&self, node: usize) -> Result<Admin, AdminError> {
        self.node(node).admin()
    }

    /// The primary that owns the slot. If two say so, the one with the newer claim does.
    pub fn owner(&self, slot: u16) -> Result<usize, Error> {
        // A busy node may not answer in time, and right after a move nobody may claim the slot.
        let until = Instant::now() + OWNER_MAX;
        loop {
            let claims = self.selves().into_iter().filter(|(_, known)| known.owns(slot));
            match claims.max_by_key(|(_, known)| known.epoch) {
                Some((node, _)) => return Ok(node),
                None if Instant::now() < until => std::thread::sleep(Duration::from_millis(5)),
                None => return Err(Error::Nobody(format!("owner of slot {slot}: {}", self.told_of(slot)))),
            }
        }
    }

    /// Waits until a node knows how new the claims of all others are.
    fn wait_heard(&self, node: usize) -> Result<(), Error> {
        until("claims heard of", OWNER_MAX, HEARD_PAUSE, || {
            let view = self.view(node)?;
            self.selves().into_iter().try_for_each(|(other, own)| {
                let heard = view.iter().any(|known| known.id == own.id && known.epoch == own.epoch);
                let news = format!("epoch {} of node {other} has not come to node {node}", own.epoch);
                if heard { Ok(()) } else { Err(NotYet(news)) }
            })
        })
    }

    /// Whom each node takes for the owner of a slot, and how new it takes that claim to be, for people.
    fn told_of(&self, slot: u16) -> String {
        let told = (0..self.nodes.len()).map(|node| {
            let view = self.view(node).unwrap_or_default();
            let owner = view.iter().find(|known| known.owns(slot));
            let at = owner.and_then(|owner| self.ids.iter().position(|id| *id == owner.id));
            format!("node {node} names {at:?} with epoch {:?}", owner.map(|owner| owner.epoch))
        });
        told.collect::<Vec<_>>().join(", ")
    }

    /// The nodes that say of themselves that they are primaries.
    pub fn primaries(&self) -> Vec<usize> {
        self.selves().into_iter().filter(|(_, known)| known.primary.is_none()).map(|(node, _)| node).collect()
    }

    /// A node that says of itself that it is a replica of this one, which may be dead.
    pub fn replica_of(&self, primary: usize) -> Result<usize, Error> {
        let id = Some(&self.ids[primary]);
        let replica = self.selves().into_iter().find(|(_, known)| known.primary.as_ref() == id);
        let replica = replica.map(|(node, _)| node);
        replica.ok_or_else(|| Error::Nobody(format!("replica of node {primary}")))
    }

    /// Kills a node as a power failure would.
    pub fn kill9(&mut self, node: usize) -> Result<(), Error> {
        self.nodes[node].server.kill9()
    }

    /// Freezes a node.
    pub fn stop(&self, node: usize) -> Result<(), Error> {
        self.node(node).stop()
    }

    /// Lets a frozen node go on.
    pub fn resume(&self, node: usize) -> Result<(), Error> {
        self.node(node).resume()
    }

    /// Starts a node again, with no data. It knows the cluster, and the cluster knows it.
    pub fn restart(&mut self, node: usize) -> Result<(), Error> {
        self.nodes[node].server.restart()
    }

    /// The proxy before a node, if the builder was told to put one there.
    pub fn proxy(&self, node: usize) -> Result<&FaultProxy, Error> {
        self.nodes[node].proxy()
    }

    /// Cuts a node off from clients and replicas. The bus of the cluster stays, so nobody takes its place.
    pub fn partition(&self, node: usize, cut: Cut) -> Result<(), Error> {
        self.nodes[node].partition(cut)
    }

    /// Ends the partition. Connections through it are ended too.
    pub fn heal(&self, node: usize) -> Result<(), Error> {
        self.nodes[node].heal()
    }

    /// Makes a replica the primary in place of its own, which is well, and waits until all nodes that run
    /// know it.
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

    /// Waits until this replica, of a primary that is dead for instance, says that it is a primary.
    pub fn wait_promoted(&self, replica: usize, within: Duration) -> Result<Promotion, Error> {
        let mut watch = RoleWatch::new(self.node(replica));
        until("promoted", within, PAUSE, || match watch.role()? {
            Role::Primary { .. } => Ok(Promotion { node: replica, at: Instant::now() }),
            role => Err(NotYet(format!("{role:?}"))),
        })
    }

    /// Waits until all nodes run, agree on who owns what, find nothing wrong with each other, cover all
    /// slots, serve, and every replica is linked to its primary.
    pub fn wait_settled(&self) -> Result<(), Error> {
        until("settled", SETTLE_MAX, SETTLE_PAUSE, || {
            let first = self.sane_view(0)?;
            for node in 1..self.nodes.len() {
                let view = self.sane_view(node)?;
                if view.iter().map(Known::part).ne(first.iter().map(Known::part)) {
                    return Err(NotYet(format!("node {node} knows {view:?}, node 0 {first:?}")));
                }
            }
            (0..self.nodes.len()).try_for_each(|node| self.plays_its_part(node, &first))
        })
    }

    /// Waits until the replica of every primary has all that the primary has written up to now.
    pub fn wait_replicas_in_sync(&self) -> Result<(), Error> {
        for primary in self.primaries() {
            let Role::Primary { offset: written, .. } = self.role(primary)? else {
                return Err(Error::Nobody(format!("primary on node {primary} any more")));
            };
            wait_caught_up(self.node(self.replica_of(primary)?), written, SETTLE_MAX)?;
        }
        Ok(())
    }

    /// Moves a slot with all its keys to another primary, step by step as redis-cli does.
    pub fn move_slot(&self, slot: u16, to: usize) -> Result<(), Error> {
        let slot_move = self.begin_move(slot, to)?;
        while slot_move.migrate(KEYS_PER_MOVE)? > 0 {}
        slot_move.finish()
    }

    /// Begins to move a slot: from now on its owner says ASK for keys that it does not have.
    pub fn begin_move(&self, slot: u16, to: usize) -> Result<SlotMove<'_>, Error> {
        SlotMove::begin(self, slot, to)
    }

    /// [`no_orphans`] on every primary: how many keys there are in all.
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

    /// Whom a node knows, in the order of their ids.
    fn view(&self, node: usize) -> Result<Vec<Known>, Error> {
        Ok(Known::all(&mut self.node(node).admin_within(ANSWER_MAX)?)?)
    }

    /// What each node that answers says of itself.
    fn selves(&self) -> Vec<(usize, Known)> {
        let own = |node| {
            let view = self.view(node).ok()?;
            Some((node, view.into_iter().find(Known::is_itself)?))
        };
        (0..self.nodes.len()).filter_map(own).collect()
    }

    fn sane_view(&self, node: usize) -> Result<Vec<Known>, NotYet> {
        let mut admin = self.node(node).admin_within(ANSWER_MAX)?;
        let info = known::info(&mut admin)?;
        let view = Known::all(&mut admin)?;
        let slots: usize = view.iter().flat_map(|known| &known.slots).map(|range| range.len()).sum();
        let sane = info.contains("cluster_state:ok")
            && view.len() == self.nodes.len()
            && view.iter().all(Known::is_well)
            && slots == usize::from(SLOTS);
        if sane { Ok(view) } else { Err(NotYet(format!("node {node} says {info:?} and knows {view:?}"))) }
    }

    /// What a node is must be what it is known as.
    fn plays_its_part(&self, node: usize, view: &[Known]) -> Result<(), NotYet> {
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
