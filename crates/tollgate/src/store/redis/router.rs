//! Chooses the server that a Plan goes to.

use std::sync::{Arc, Weak};

use super::client::connector::Connector;
use super::client::node::{ClientContext, Node};
use super::client::pending_plan::PendingPlan;
use super::error::RedisError;
use super::protocol::plan_codec::EncodedPlan;
use super::settings::OpenError;
use super::topology::cluster::Cluster;
use super::topology::hash_slot::hash_slot;
use super::topology::primary_locator::PrimaryLocator;
use super::topology::sentinel::SentinelWatcher;
use super::topology::url::Topology;

/// The servers of one store.
pub(super) enum Router {
    /// One server holds all keys: the only one, or the primary behind sentinels.
    Single(Node),
    Cluster(Arc<Cluster>),
}

/// The status of one Redis server.
#[derive(Clone, Debug)]
pub struct ServerStatus {
    /// Host and port. None until a sentinel names the primary.
    pub address: Option<String>,
    /// Why the store sends nothing to this server, if it is down.
    pub down: Option<RedisError>,
    /// How many times the server went down (its breaker opened).
    pub opened: u64,
    /// How many times the server came back (its breaker closed).
    pub closed: u64,
}

impl Router {
    /// Starts the connections, and what follows the topology.
    pub(super) fn open(context: Arc<ClientContext>, topology: Topology) -> Result<Router, OpenError> {
        Ok(match topology {
            Topology::Server(address) => {
                let locator = PrimaryLocator::Fixed(address);
                Router::Single(Node::new(&context, locator, Arc::default(), Weak::new()))
            }
            Topology::Sentinels { addresses, name, options } => {
                let connector = Connector::new(options).map_err(OpenError::Certificates)?;
                let breaker = Arc::default();
                let watcher = Arc::new(SentinelWatcher::new(
                    connector,
                    Arc::clone(&name),
                    Arc::clone(&breaker),
                    &context,
                ));
                let primary = watcher.primary.subscribe();
                let locator = PrimaryLocator::Sentinels { name, primary };
                let node = Node::new(&context, locator, breaker, Weak::new());
                watcher.watch(addresses);
                Router::Single(node)
            }
            Topology::Cluster(seeds) => Router::Cluster(Cluster::new(context, seeds)),
        })
    }

    pub(super) fn is_cluster(&self) -> bool {
        matches!(self, Router::Cluster(_))
    }

    /// The hash slot of a Plan's first key; 0 if there is no cluster.
    pub(super) fn hash_slot(&self, plan: &EncodedPlan) -> u16 {
        match self {
            Router::Single(_) => 0,
            Router::Cluster(_) => plan.keys().next().map_or(0, hash_slot),
        }
    }

    /// Queues a Plan for its server, or answers it with the reason why not.
    pub(super) fn send(&self, pending: PendingPlan) {
        match self {
            Router::Single(node) => node.send(pending),
            Router::Cluster(cluster) => cluster.send(pending),
        }
    }

    pub(super) fn status(&self) -> Vec<ServerStatus> {
        match self {
            Router::Single(node) => vec![node.status()],
            Router::Cluster(cluster) => cluster.nodes().iter().map(|node| node.status()).collect(),
        }
    }
}
