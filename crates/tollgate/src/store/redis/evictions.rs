//! How many keys the servers have evicted.
//!
//! Such calls are rare, and use separate connections: no check waits for one.

use std::sync::Arc;

use tokio::time::{Instant, timeout_at};
use tollgate_core::StoreError;

use super::client::node::Node;
use super::error::RedisError;
use super::router::Router;
use super::{READY_TIMEOUT, RedisStore};

impl<C> RedisStore<C> {
    /// Returns the address of each server that holds keys, and how many keys it has evicted since its start.
    ///
    /// A server evicts keys if it is full and its `maxmemory-policy` is not `noeviction`. The keys may be those of other
    /// users of the same server. Requires the permission to run `INFO`.
    #[doc(hidden)]
    pub async fn evicted_keys(&self) -> Result<Vec<(String, u64)>, StoreError> {
        let asked = timeout_at(Instant::now() + READY_TIMEOUT, async {
            let servers: Vec<Arc<Node>> = match &self.inner.router {
                Router::Single(node) => return Ok(vec![evicted_by(node).await?]),
                Router::Cluster(cluster) => cluster.servers().await?,
            };
            let mut evicted = Vec::with_capacity(servers.len());
            for server in servers {
                evicted.push(evicted_by(&server).await?);
            }
            Ok(evicted)
        });
        Ok(asked.await.unwrap_or(Err(RedisError::NoReply))?)
    }
}

async fn evicted_by(server: &Node) -> Result<(String, u64), RedisError> {
    let (address, mut connection) = server.state.open_command_connection().await?;
    let reply = connection.command(&[b"INFO", b"stats"]).await?;
    let mut lines = reply.text().unwrap_or_default().lines();
    let evicted = lines.find_map(|line| line.strip_prefix("evicted_keys:")?.trim().parse().ok());
    let evicted = evicted.ok_or(RedisError::UnexpectedReply("no evicted_keys in the reply to INFO"))?;
    Ok((address.to_string(), evicted))
}
