//! A primary, its replicas, and three sentinels that watch over them.

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

/// What the sentinels call the primary.
const NAME: &str = "gate";

/// How long all of them may take to agree. Sentinels of Redis 6.2 take twenty seconds to demote an old
/// primary: they look every ten, and not earlier than eight after they first saw it.
const SETTLE_MAX: Duration = Duration::from_secs(40);
const SETTLE_PAUSE: Duration = Duration::from_millis(20);

/// Servers on 127.0.0.1, all killed when it is dropped.
///
/// Data nodes are numbered from 0, which is the primary at first. Their settings lie in files that the
/// sentinels rewrite, so a node that is restarted is what it was last told to be. No node keeps data over a
/// restart.
#[derive(Debug)]
pub struct SentinelSet {
    options: SentinelBuilder,
    /// Before the nodes, so that they do not see them go.
    sentinels: Vec<Server>,
    nodes: Vec<Node>,
    certificates: Option<(Certificates, TempDir)>,
}

/// A node that became the primary.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Promotion {
    /// Its number.
    pub node: usize,
    /// When it first said so.
    pub at: Instant,
}

impl SentinelSet {
    /// Starts a primary, a replica and three sentinels, and waits until they are settled.
    pub fn start(flavour: Flavour) -> Result<SentinelSet, Error> {
        SentinelSet::builder(flavour).start()
    }

    /// A set with more to it.
    pub fn builder(flavour: Flavour) -> SentinelBuilder {
        SentinelBuilder::new(flavour)
    }

    /// What the sentinels call the primary.
    pub fn name(&self) -> &str {
        NAME
    }

    /// Where clients ask the sentinels, and with what they log in: to the nodes before the `@`, to the
    /// sentinels in the query.
    pub fn url(&self) -> String {
        let scheme = if self.options.tls_nodes { "rediss" } else { "redis" };
        let password = self.options.password.as_ref();
        let credentials = password.map(|password| format!(":{password}@")).unwrap_or_default();
        let hosts: Vec<String> =
            self.sentinel_ports().into_iter().map(|port| format!("127.0.0.1:{port}")).collect();
        let query = self.options.query(self.certificates());
        format!("{scheme}+sentinel://{credentials}{}/{NAME}{query}", hosts.join(","))
    }

    /// Where clients reach the sentinels: with TLS, if they were to have it.
    pub fn sentinel_ports(&self) -> Vec<u16> {
        let tls = self.options.tls_sentinels;
        let port = |server: &Server| server.tls_port().filter(|_| tls).unwrap_or(server.port());
        self.sentinels.iter().map(port).collect()
    }

    /// Where clients reach this data node, and what the sentinels tell them.
    pub fn node_port(&self, node: usize) -> u16 {
        self.nodes[node].port()
    }

    /// The certificates of all servers, if any of them has TLS.
    pub fn certificates(&self) -> Option<&Certificates> {
        self.certificates.as_ref().map(|(certificates, _)| certificates)
    }

    /// How many data nodes there are.
    pub fn count(&self) -> usize {
        self.nodes.len()
    }

    /// A data node.
    pub fn node(&self, node: usize) -> &Server {
        &self.nodes[node].server
    }

    /// A sentinel, from 0 to 2.
    pub fn sentinel(&self, sentinel: usize) -> &Server {
        &self.sentinels[sentinel]
    }

    /// The number of the primary, as most sentinels that answer see it now.
    pub fn primary_index(&self) -> Result<usize, Error> {
        let mut votes = vec![0; self.nodes.len()];
        for sentinel in &self.sentinels {
            // One that is down or behind has no say.
            if let Ok(port) = View::primary_port(sentinel)
                && let Some(node) = self.node_on(port)
            {
                votes[node] += 1;
            }
        }
        let most = (0..votes.len()).max_by_key(|&node| votes[node]).filter(|&node| votes[node] > 0);
        most.ok_or_else(|| Error::Nobody("primary that a sentinel knows".to_owned()))
    }

    /// The primary, as most sentinels that answer see it now.
    pub fn primary(&self) -> Result<&Server, Error> {
        Ok(self.node(self.primary_index()?))
    }

    /// The number of the first data node that is not the primary.
    pub fn replica_index(&self) -> Result<usize, Error> {
        let primary = self.primary_index()?;
        let replica = (0..self.nodes.len()).find(|&node| node != primary);
        replica.ok_or_else(|| Error::Nobody("replica".to_owned()))
    }

    /// The first data node that is not the primary.
    pub fn replica(&self) -> Result<&Server, Error> {
        Ok(self.node(self.replica_index()?))
    }

    /// Kills the primary as a power failure would, and tells which node it was.
    pub fn kill9_primary(&mut self) -> Result<usize, Error> {
        let primary = self.primary_index()?;
        self.kill9(primary)?;
        Ok(primary)
    }

    /// Kills a data node as a power failure would.
    pub fn kill9(&mut self, node: usize) -> Result<(), Error> {
        self.nodes[node].server.kill9()
    }

    /// Freezes the primary, and tells which node it was.
    pub fn stop_primary(&self) -> Result<usize, Error> {
        let primary = self.primary_index()?;
        self.node(primary).stop()?;
        Ok(primary)
    }

    /// Lets a frozen data node go on.
    pub fn resume(&self, node: usize) -> Result<(), Error> {
        self.node(node).resume()
    }

    /// Starts a data node again, with no data, as what it was last told to be. The sentinels demote a primary
    /// that has a successor.
    pub fn restart(&mut self, node: usize) -> Result<(), Error> {
        self.nodes[node].server.restart()
    }

    /// Kills a sentinel.
    pub fn kill9_sentinel(&mut self, sentinel: usize) -> Result<(), Error> {
        self.sentinels[sentinel].kill9()
    }

    /// Starts a sentinel again. It remembers what it knew.
    pub fn restart_sentinel(&mut self, sentinel: usize) -> Result<(), Error> {
        let server = &mut self.sentinels[sentinel];
        server.restart()?;
        builder::hurry(server)
    }

    /// The proxy before a data node, if the builder was told to put one there.
    pub fn proxy(&self, node: usize) -> Result<&FaultProxy, Error> {
        self.nodes[node].proxy()
    }

    /// Cuts a data node off from clients, sentinels and the other nodes. [`SentinelSet::node`] still reaches
    /// it.
    pub fn partition(&self, node: usize, cut: Cut) -> Result<(), Error> {
        self.nodes[node].partition(cut)
    }

    /// Ends the partition. Connections through it are ended too.
    pub fn heal(&self, node: usize) -> Result<(), Error> {
        self.nodes[node].heal()
    }

    /// Tells a sentinel to promote a replica while the primary is well, and waits until the replica says that
    /// it is a primary. Sentinels tell of it a little later, see [`SentinelSet::wait_told`], and the old
    /// primary goes on until they demote it: [`SentinelSet::wait_settled`] waits for that too.
    pub fn failover(&self) -> Result<Promotion, Error> {
        let old = self.primary_index()?;
        until("ordered a failover", SETTLE_MAX, SETTLE_PAUSE, || {
            // For want of news a sentinel may find no replica good enough, just now.
            self.running_sentinel()?.admin()?.command(&[b"SENTINEL", b"FAILOVER", NAME.as_bytes()])?;
            Ok(())
        })?;
        self.wait_promoted(old, SETTLE_MAX)
    }

    /// Waits until another data node than this one says that it is the primary.
    pub fn wait_promoted(&self, old: usize, within: Duration) -> Result<Promotion, Error> {
        let others = (0..self.nodes.len()).filter(|&node| node != old);
        let mut watched: Vec<_> = others.map(|node| (node, RoleWatch::new(self.node(node)))).collect();
        until("promoted", within, PAUSE, || {
            for (node, watch) in &mut watched {
                // One that is stopped or killed must not hide another.
                if let Ok(Role::Primary { .. }) = watch.role() {
                    return Ok(Promotion { node: *node, at: Instant::now() });
                }
            }
            Err(NotYet(format!("no node but {old} says that it is the primary")))
        })
    }

    /// Waits until every replica that runs has all that the primary has written up to now.
    pub fn wait_replicas_in_sync(&self) -> Result<(), Error> {
        let primary = self.primary_index()?;
        let Role::Primary { offset: written, .. } = self.role(primary)? else {
            return Err(Error::Nobody(format!("primary on node {primary} yet")));
        };
        let replicas = (0..self.nodes.len()).filter(|&node| node != primary).map(|node| self.node(node));
        let mut running = replicas.filter(|replica| replica.is_running());
        running.try_for_each(|replica| wait_caught_up(replica, written, SETTLE_MAX))
    }

    /// Waits until every sentinel that runs tells its clients that this node is the primary. Most do so
    /// within a second of the promotion.
    pub fn wait_told(&self, node: usize, within: Duration) -> Result<Instant, Error> {
        let port = self.node_port(node);
        until("told", within, PAUSE, || {
            for sentinel in self.sentinels.iter().filter(|sentinel| sentinel.is_running()) {
                let told = View::primary_port(sentinel)?;
                if told != port {
                    return Err(NotYet(format!("a sentinel tells of {told} instead of {port}")));
                }
            }
            Ok(Instant::now())
        })
    }

    /// Waits until all sentinels agree on the primary, know each other and every replica, find nothing wrong
    /// with anyone, and every replica is linked to the primary.
    pub fn wait_settled(&self) -> Result<(), Error> {
        until("settled", SETTLE_MAX, SETTLE_PAUSE, || {
            let primary = self.primary_index()?;
            self.sentinels.iter().try_for_each(|sentinel| self.agrees(sentinel, primary))?;
            (0..self.nodes.len()).try_for_each(|node| self.plays_its_part(node, primary))
        })
    }

    fn agrees(&self, sentinel: &Server, primary: usize) -> Result<(), NotYet> {
        let mut replicas: Vec<u16> = (0..self.nodes.len()).map(|node| self.node_port(node)).collect();
        let wanted = View { primary: replicas.remove(primary), replicas, others: self.sentinels.len() - 1 };
        let view = View::of(sentinel)?;
        if view.same(&wanted) { Ok(()) } else { Err(NotYet(format!("{view:?} instead of {wanted:?}"))) }
    }

    fn plays_its_part(&self, node: usize, primary: usize) -> Result<(), NotYet> {
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
        running.ok_or_else(|| Error::Nobody("sentinel that runs".to_owned()))
    }

    fn node_on(&self, port: u16) -> Option<usize> {
        self.nodes.iter().position(|node| node.port() == port)
    }

    fn role(&self, node: usize) -> Result<Role, Error> {
        Ok(Role::of(&mut self.node(node).admin_within(ANSWER_MAX)?)?)
    }
}
