//! Runs scripts on single keys, outside of Plans.
//!
//! Such calls are rare, and use separate connections: no check waits for one.

use tokio::time::{Instant, timeout_at};
use tollgate_core::StoreError;

use super::error::RedisError;
use super::router::Router;
use super::{READY_TIMEOUT, RedisStore};
use crate::store::redis::client::connection::CommandConnection;
use crate::store::redis::protocol::resp::Reply;
use crate::store::redis::topology::hash_slot::hash_slot;

/// Redirections of one call. More of them form a loop.
const REDIRECTIONS_MAX: usize = 5;

impl<C> RedisStore<C> {
    /// The name of a key on the server: with the prefix of this store.
    #[doc(hidden)]
    pub fn prefixed(&self, key: &str) -> String {
        format!("{}{key}", self.inner.prefix)
    }

    /// Runs a Lua script on the server that owns `key`, and returns its reply; `None` for nil.
    ///
    /// The script gets the prefixed key as `KEYS[1]` and `args` as `ARGV`. Redirections of a cluster are followed.
    #[doc(hidden)]
    pub async fn eval_on_key_owner(
        &self,
        script: &str,
        key: &str,
        args: &[&str],
    ) -> Result<Option<String>, StoreError> {
        let evaluated = timeout_at(Instant::now() + READY_TIMEOUT, self.eval(script, key, args)).await;
        Ok(evaluated.unwrap_or(Err(RedisError::NoReply))?)
    }

    async fn eval(&self, script: &str, key: &str, args: &[&str]) -> Result<Option<String>, RedisError> {
        let key = self.prefixed(key);
        let mut words = vec![&b"EVAL"[..], script.as_bytes(), b"1", key.as_bytes()];
        words.extend(args.iter().map(|arg| arg.as_bytes()));
        let cluster = match &self.inner.router {
            Router::Single(node) => {
                let (_, mut connection) = node.state.open_command_connection().await?;
                return send(&mut connection, &words).await;
            }
            Router::Cluster(cluster) => cluster,
        };
        let (mut node, mut asking) = (cluster.owner(hash_slot(key.as_bytes())).await?, false);
        for _ in 0..REDIRECTIONS_MAX {
            let (address, mut connection) = node.state.open_command_connection().await?;
            if asking {
                connection.command(&[b"ASKING"]).await?;
            }
            match send(&mut connection, &words).await {
                Ok(found) => return Ok(found),
                Err(error) => match cluster.follow_redirect(&error, &address) {
                    Some(instead) => (node, asking) = instead,
                    None => return Err(error),
                },
            }
        }
        Err(RedisError::UnexpectedReply("the servers of the cluster redirect a script in a loop"))
    }
}

async fn send(connection: &mut CommandConnection, words: &[&[u8]]) -> Result<Option<String>, RedisError> {
    match connection.command(words).await? {
        Reply::Value(found) => Ok(found.map(|found| String::from_utf8_lossy(found).into_owned())),
        _ => Err(RedisError::UnexpectedReply("the reply of a script is not a string")),
    }
}
