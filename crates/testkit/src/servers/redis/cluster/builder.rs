//! Starts the nodes of a cluster and joins them.

use std::ops::Range;
use std::time::Duration;

use tempfile::TempDir;

use super::{Cluster, NODES, PRIMARIES, SETTLE_MAX, SETTLE_PAUSE, SLOTS, known};
use crate::redis::certificates::Certificates;
use crate::redis::error::Error;
use crate::redis::flavour::Flavour;
use crate::redis::node::Node;
use crate::redis::server::Server;
use crate::redis::wait::until;

/// Options of a cluster.
#[derive(Clone, Debug)]
pub struct ClusterBuilder {
    flavour: Flavour,
    pub(super) password: Option<String>,
    node_timeout: Duration,
    full_coverage: bool,
    proxied: bool,
    pub(super) tls: bool,
    arguments: Vec<String>,
}

impl ClusterBuilder {
    pub(super) fn new(flavour: Flavour) -> ClusterBuilder {
        ClusterBuilder {
            flavour,
            password: None,
            node_timeout: Duration::from_secs(1),
            full_coverage: false,
            proxied: false,
            tls: false,
            arguments: Vec::new(),
        }
    }

    /// Sets the password of all nodes. It must not need escaping in a URL.
    pub fn password(mut self, password: &str) -> ClusterBuilder {
        self.password = Some(password.to_owned());
        self
    }

    /// Sets how long a node may be silent before the others consider it dead. The default is 1 s.
    pub fn node_timeout(mut self, node_timeout: Duration) -> ClusterBuilder {
        self.node_timeout = node_timeout;
        self
    }

    /// Makes all nodes refuse requests while a slot has no owner. By default only requests for that slot fail.
    pub fn require_full_coverage(mut self) -> ClusterBuilder {
        self.full_coverage = true;
        self
    }

    /// Puts a proxy in front of each node, for [`Cluster::partition`]. The cluster bus bypasses it.
    pub fn proxied(mut self) -> ClusterBuilder {
        self.proxied = true;
        self
    }

    /// Uses TLS for clients, replicas and the cluster bus, with one authority for all nodes.
    pub fn tls(mut self) -> ClusterBuilder {
        self.tls = true;
        self
    }

    /// Adds arguments of the nodes. They come last and override others.
    pub fn arguments<S: Into<String>>(mut self, arguments: impl IntoIterator<Item = S>) -> ClusterBuilder {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Starts all nodes and waits until they are settled.
    pub fn start(self) -> Result<Cluster, Error> {
        let certificates = self.certificates()?;
        let mut cluster = Cluster { options: self, nodes: Vec::new(), ids: Vec::new(), certificates };
        for node in 0..NODES {
            cluster.nodes.push(cluster.options.node(node as u64, cluster.certificates())?);
            cluster.ids.push(known::my_id(&mut cluster.admin(node)?)?);
        }
        for node in 0..NODES {
            assign(&cluster, node)?;
        }
        for node in 0..NODES {
            meet(&cluster, node)?;
        }
        for replica in PRIMARIES..NODES {
            replicate(&cluster, replica)?;
        }
        cluster.wait_settled()?;
        Ok(cluster)
    }

    fn certificates(&self) -> Result<Option<(Certificates, TempDir)>, Error> {
        if !self.tls {
            return Ok(None);
        }
        let folder = TempDir::with_prefix("tollgate-redis-").map_err(Error::io("create a folder"))?;
        Ok(Some((Certificates::generate(folder.path())?, folder)))
    }

    fn node(&self, seed: u64, certificates: Option<&Certificates>) -> Result<Node, Error> {
        let timeout_ms = self.node_timeout.as_millis().to_string();
        let coverage = if self.full_coverage { "yes" } else { "no" };
        let mut builder = Server::builder(self.flavour)
            .bus()
            .arguments(["--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf"])
            .arguments(["--cluster-node-timeout", &timeout_ms, "--cluster-require-full-coverage", coverage])
            // A new replica gets its data at once.
            .arguments(["--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0"]);
        if let Some(password) = &self.password {
            builder = builder.password(password).arguments(["--masterauth", password]);
        }
        if let Some(certificates) = certificates {
            builder = builder.tls_with(certificates.clone()).arguments([
                "--tls-cluster",
                "yes",
                "--tls-replication",
                "yes",
            ]);
        }
        let builder = builder.arguments(self.arguments.iter().cloned());
        if self.proxied {
            Node::start_behind_proxy(builder, "--cluster-announce-port", seed)
        } else {
            Node::start(builder)
        }
    }
}

/// Assigns slots to a primary, and a separate epoch to every node, so that no claims collide. Both are only possible
/// before a node joins the cluster.
fn assign(cluster: &Cluster, node: usize) -> Result<(), Error> {
    let mut admin = cluster.admin(node)?;
    let epoch = (node + 1).to_string();
    admin.command(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch].map(str::as_bytes))?;
    if node < PRIMARIES {
        // Redis 6.2 does not support ranges.
        let slots: Vec<String> = share(node).map(|slot| slot.to_string()).collect();
        let mut command: Vec<&[u8]> = vec![b"CLUSTER", b"ADDSLOTS"];
        command.extend(slots.iter().map(String::as_bytes));
        admin.command(&command)?;
    }
    Ok(())
}

fn share(node: usize) -> Range<usize> {
    let begin = |node: usize| node * usize::from(SLOTS) / PRIMARIES;
    begin(node)..begin(node + 1)
}

/// Introduces a node to the nodes after it. Gossip alone would take seconds.
fn meet(cluster: &Cluster, node: usize) -> Result<(), Error> {
    let mut admin = cluster.admin(node)?;
    for other in node + 1..NODES {
        // The bus port is derived from the node's own port, not from that of the proxy.
        let port = cluster.node(other).cluster_port().to_string();
        admin.command(&["CLUSTER", "MEET", "127.0.0.1", &port].map(str::as_bytes))?;
    }
    Ok(())
}

/// Makes the node a replica as soon as it knows its primary.
fn replicate(cluster: &Cluster, replica: usize) -> Result<(), Error> {
    let primary = &cluster.ids[replica - PRIMARIES];
    until("a replica", SETTLE_MAX, SETTLE_PAUSE, || {
        let command = ["CLUSTER", "REPLICATE", primary].map(str::as_bytes);
        cluster.admin(replica)?.command(&command)?;
        Ok(())
    })
}
