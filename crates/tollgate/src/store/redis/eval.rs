//! Runs scripts on single keys, outside of Plans.
//!
//! Such calls are rare, and use separate connections: no check waits for one.

use tokio::time::{Instant, timeout_at};
use tollgate_core::StoreError;

use super::error::RedisError;
use super::{READY_MAX, RedisStore, Router};
use crate::store::redis::client::connection::Dialogue;
use crate::store::redis::protocol::reply::Reply;
use crate::store::redis::topology::slot::slot_of;

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
        let evaluated = timeout_at(Instant::now() + READY_MAX, self.eval(script, key, args)).await;
        Ok(evaluated.unwrap_or(Err(RedisError::NoReply))?)
    }

    async fn eval(&self, script: &str, key: &str, args: &[&str]) -> Result<Option<String>, RedisError> {
        let key = self.prefixed(key);
        let mut words = vec![&b"EVAL"[..], script.as_bytes(), b"1", key.as_bytes()];
        words.extend(args.iter().map(|arg| arg.as_bytes()));
        let cluster = match &self.inner.router {
            Router::One(node) => {
                let (_, mut dialogue) = node.state.dialogue().await?;
                return send(&mut dialogue, &words).await;
            }
            Router::Cluster(cluster) => cluster,
        };
        let (mut node, mut asking) = (cluster.owner(slot_of(key.as_bytes())).await?, false);
        for _ in 0..REDIRECTIONS_MAX {
            let (address, mut dialogue) = node.state.dialogue().await?;
            if asking {
                dialogue.ask(&[b"ASKING"]).await?;
            }
            match send(&mut dialogue, &words).await {
                Ok(found) => return Ok(found),
                Err(error) => match cluster.instead(&error, &address) {
                    Some(instead) => (node, asking) = instead,
                    None => return Err(error),
                },
            }
        }
        Err(RedisError::Nonsense("the servers of the cluster redirect a script in a loop"))
    }
}

async fn send(dialogue: &mut Dialogue, words: &[&[u8]]) -> Result<Option<String>, RedisError> {
    match dialogue.ask(words).await? {
        Reply::Value(found) => Ok(found.map(|found| String::from_utf8_lossy(found).into_owned())),
        _ => Err(RedisError::Nonsense("the reply of a script is not a string")),
    }
}
