//! A set: a primary, its replicas, and three sentinels.

mod builder;
mod view;

use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::certificates::Certificates;
use super::error::Error;
use super::flavour::Flavour;
use super::node::{Cut, Node};
use super::role::{ANSWER_MAX, PAUSE, Role, RoleWatch, wait_caught_up};
use super::server::Server;
use super::wait::{NotYet, until};
use crate::fault_proxy::FaultProxy;

pub use builder::SentinelBuilder;
use view::View;

/// Name of the primary in the sentinels.
const NAME: &str = "gate";

/// Deadline for all servers to agree. Sentinels of Redis 6.2 need twenty seconds to demote an old primary: they check every
/// ten seconds, and not earlier than eight seconds after they first saw it.
const SETTLE_MAX: Duration = Duration::from_secs(40);
const SETTLE_PAUSE: Duration = Duration::from_millis(20);

/// A set on 127.0.0.1. Dropping it kills all servers.
///
/// Data nodes are numbered from 0, which is the primary at first. The sentinels rewrite the nodes' settings files, so a
/// restarted node has its last role. No node keeps data over a restart.
#[derive(Debug)]
pub struct SentinelSet {
    options: SentinelBuilder,
    /// Declared before the nodes, so that the sentinels are killed first.
    sentinels: Vec<Server>,
    nodes: Vec<Node>,
    certificates: Option<(Certificates, TempDir)>,
}

/// A node that became the primary.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Promotion {
    /// Number of the node.
    pub node: usize,
    /// When it first reported to be a primary.
    pub at: Instant,
}

impl SentinelSet {
    /// Starts a primary, a replica and three sentinels, and waits until they are settled.
    pub fn start(flavour: Flavour) -> Result<SentinelSet, Error> {
        SentinelSet::builder(flavour).start()
    }

    /// Returns a builder for a set with other options.
    pub fn builder(flavour: Flavour) -> SentinelBuilder {
        SentinelBuilder::new(flavour)
    }

    /// Returns the name of the primary in the sentinels.
    pub fn name(&self) -> &str {
        NAME
    }

    /// Returns the URL of the sentinels, with credentials: those of the nodes before the `@`, those of the sentinels in the
    /// query.
    pub fn url(&self) -> String {
        let scheme = if self.options.tls_nodes { "rediss" } else { "redis" };
        let password = self.options.password.as_ref();
        let credentials = password.map(|password| format!(":{password}@")).unwrap_or_default();
        let hosts: Vec<String> =
            self.sentinel_ports().into_iter().map(|port| format!("127.0.0.1:{port}")).collect();
        let query = self.options.query(self.certificates());
        format!("{scheme}+sentinel://{credentials}{}/{NAME}{query}", hosts.join(","))
    }

    /// Returns the ports of the sentinels for clients: the TLS ports, if they have TLS.
    pub fn sentinel_ports(&self) -> Vec<u16> {
        let tls = self.options.tls_sentinels;
        let port = |server: &Server| server.tls_port().filter(|_| tls).unwrap_or(server.port());
        self.sentinels.iter().map(port).collect()
    }

    /// Returns the port of this data node for clients, as the sentinels announce it.
    pub fn node_port(&self, node: usize) -> u16 {
        self.nodes[node].port()
    }

    /// Returns the certificates of all servers, if any has TLS.
    pub fn certificates(&self) -> Option<&Certificates> {
        self.certificates.as_ref().map(|(certificates, _)| certificates)
    }

    /// Returns the number of data nodes.
    pub fn count(&self) -> usize {
        self.nodes.len()
    }

    /// Returns a data node.
    pub fn node(&self, node: usize) -> &Server {
        &self.nodes[node].server
    }

    /// Returns a sentinel, from 0 to 2.
    pub fn sentinel(&self, sentinel: usize) -> &Server {
        &self.sentinels[sentinel]
    }

    /// Returns the number of the primary, according to most answering sentinels.
    pub fn primary_index(&self) -> Result<usize, Error> {
        let mut votes = vec![0; self.nodes.len()];
        for sentinel in &self.sentinels {
            // Ignores sentinels that are down or outdated.
            if let Ok(port) = View::primary_port(sentinel)
                && let Some(node) = self.node_on(port)
            {
                votes[node] += 1;
            }
        }
        let most = (0..votes.len()).max_by_key(|&node| votes[node]).filter(|&node| votes[node] > 0);
        most.ok_or_else(|| Error::NoServer("primary that a sentinel knows".to_owned()))
    }

    /// Returns the primary, according to most answering sentinels.
    pub fn primary(&self) -> Result<&Server, Error> {
        Ok(self.node(self.primary_index()?))
    }

    /// Returns the number of the first data node that is not the primary.
    pub fn replica_index(&self) -> Result<usize, Error> {
        let primary = self.primary_index()?;
        let replica = (0..self.nodes.len()).find(|&node| node != primary);
        replica.ok_or_else(|| Error::NoServer("replica".to_owned()))
    }

    /// Returns the first data node that is not the primary.
    pub fn replica(&self) -> Result<&Server, Error> {
        Ok(self.node(self.replica_index()?))
    }

    /// Kills the primary, like a power failure, and returns its number.
    pub fn kill9_primary(&mut self) -> Result<usize, Error> {
        let primary = self.primary_index()?;
        self.kill9(primary)?;
        Ok(primary)
    }

    /// Kills a data node, like a power failure.
    pub fn kill9(&mut self, node: usize) -> Result<(), Error> {
        self.nodes[node].server.kill9()
    }

    /// Stops the process of the primary and returns its number.
    pub fn stop_primary(&self) -> Result<usize, Error> {
        let primary = self.primary_index()?;
        self.node(primary).stop()?;
        Ok(primary)
    }

    /// Resumes a stopped data node.
    pub fn resume(&self, node: usize) -> Result<(), Error> {
        self.node(node).resume()
    }

    /// Restarts a data node without data, in its last role. The sentinels demote a primary that was replaced.
    pub fn restart(&mut self, node: usize) -> Result<(), Error> {
        self.nodes[node].server.restart()
    }

    /// Kills a sentinel.
    pub fn kill9_sentinel(&mut self, sentinel: usize) -> Result<(), Error> {
        self.sentinels[sentinel].kill9()
    }

    /// Restarts a sentinel with its earlier state.
    pub fn restart_sentinel(&mut self, sentinel: usize) -> Result<(), Error> {
        let server = &mut self.sentinels[sentinel];
        server.restart()?;
        builder::shorten_polling_periods(server)
    }

    /// Returns the proxy in front of a data node, if the builder added one.
    pub fn proxy(&self, node: usize) -> Result<&FaultProxy, Error> {
        self.nodes[node].proxy()
    }

    /// Cuts a data node off from clients, sentinels and other nodes. [`SentinelSet::node`] still reaches it.
    pub fn partition(&self, node: usize, cut: Cut) -> Result<(), Error> {
        self.nodes[node].partition(cut)
    }

    /// Ends the partition, and closes the connections through it.
    pub fn heal(&self, node: usize) -> Result<(), Error> {
        self.nodes[node].heal()
    }

    /// Makes a sentinel promote a replica while the primary is healthy, and waits until the replica reports to be a primary.
    ///
    /// The sentinels announce it a little later ([`SentinelSet::wait_announced`]). The old primary continues until they
    /// demote it ([`SentinelSet::wait_settled`]).
    pub fn failover(&self) -> Result<Promotion, Error> {
        let old = self.primary_index()?;
        until("ordered a failover", SETTLE_MAX, SETTLE_PAUSE, || {
            // A sentinel without recent information may find no suitable replica yet.
            self.running_sentinel()?.admin()?.command(&[b"SENTINEL", b"FAILOVER", NAME.as_bytes()])?;
            Ok(())
        })?;
        self.wait_promoted(old, SETTLE_MAX)
    }

    /// Waits until another data node reports to be the primary.
    pub fn wait_promoted(&self, old: usize, within: Duration) -> Result<Promotion, Error> {
        let others = (0..self.nodes.len()).filter(|&node| node != old);
        let mut watched: Vec<_> = others.map(|node| (node, RoleWatch::new(self.node(node)))).collect();
        until("promoted", within, PAUSE, || {
            for (node, watch) in &mut watched {
                // A stopped or killed node must not hide another.
                if let Ok(Role::Primary { .. }) = watch.role() {
                    return Ok(Promotion { node: *node, at: Instant::now() });
                }
            }
            Err(NotYet(format!("no node but {old} says that it is the primary")))
        })
    }

    /// Waits until every running replica has all writes of the primary up to now.
    pub fn wait_replicas_in_sync(&self) -> Result<(), Error> {
        let primary = self.primary_index()?;
        let Role::Primary { offset: written, .. } = self.role(primary)? else {
            return Err(Error::NoServer(format!("primary on node {primary} yet")));
        };
        let replicas = (0..self.nodes.len()).filter(|&node| node != primary).map(|node| self.node(node));
        let mut running = replicas.filter(|replica| replica.is_running());
        running.try_for_each(|replica| wait_caught_up(replica, written, SETTLE_MAX))
    }

    /// Waits until every running sentinel announces this node as the primary. Most do so within a second.
    pub fn wait_announced(&self, node: usize, within: Duration) -> Result<Instant, Error> {
        let port = self.node_port(node);
        until("announced", within, PAUSE, || {
            for sentinel in self.sentinels.iter().filter(|sentinel| sentinel.is_running()) {
                let announced = View::primary_port(sentinel)?;
                if announced != port {
                    return Err(NotYet(format!("a sentinel announces {announced} instead of {port}")));
                }
            }
            Ok(Instant::now())
        })
    }

    /// Waits until all sentinels agree on the primary, know each other and every replica, see all of them as healthy, and
    /// every replica is linked to the primary.
    pub fn wait_settled(&self) -> Result<(), Error> {
        until("settled", SETTLE_MAX, SETTLE_PAUSE, || {
            let primary = self.primary_index()?;
            self.sentinels.iter().try_for_each(|sentinel| self.agrees(sentinel, primary))?;
            (0..self.nodes.len()).try_for_each(|node| self.check_role(node, primary))
        })
    }

    fn agrees(&self, sentinel: &Server, primary: usize) -> Result<(), NotYet> {
        let mut replicas: Vec<u16> = (0..self.nodes.len()).map(|node| self.node_port(node)).collect();
        let wanted = View { primary: replicas.remove(primary), replicas, others: self.sentinels.len() - 1 };
        let view = View::of(sentinel)?;
        if view.same(&wanted) { Ok(()) } else { Err(NotYet(format!("{view:?} instead of {wanted:?}"))) }
    }

    fn check_role(&self, node: usize, primary: usize) -> Result<(), NotYet> {
        let port = self.node_port(primary);
        match self.role(node)? {
            Role::Primary { replicas, .. } if node == primary && replicas.len() + 1 == self.nodes.len() => {
                Ok(())
            }
            Role::Replica { primary, connected: true, .. } if primary == port => Ok(()),
            role => Err(NotYet(format!("node {node} under {primary}: {role:?}"))),
        }
    }

    fn running_sentinel(&self) -> Result<&Server, Error> {
        let running = self.sentinels.iter().find(|sentinel| sentinel.is_running());
        running.ok_or_else(|| Error::NoServer("sentinel that runs".to_owned()))
    }

    fn node_on(&self, port: u16) -> Option<usize> {
        self.nodes.iter().position(|node| node.port() == port)
    }

    fn role(&self, node: usize) -> Result<Role, Error> {
        Ok(Role::of(&mut self.node(node).admin_within(ANSWER_MAX)?)?)
    }
}
