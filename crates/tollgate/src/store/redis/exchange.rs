//! What servers that share a store tell each other through it: small notes, each under a key of its own.
//!
//! Notes are rare, and travel on connections of their own: no check waits for one.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use tollgate_core::{FleetKey, StoreError};

use super::error::RedisError;
use super::router::Router;
use super::{READY_TIMEOUT, RedisStore};
use crate::store::redis::client::connection::CommandConnection;
use crate::store::redis::protocol::resp::Reply;
use crate::store::redis::topology::hash_slot::hash_slot;

const SCRIPT: &str = include_str!("lua/exchange.lua");
/// Whoever was sent elsewhere so often goes in circles.
const HOPS_MAX: usize = 5;

/// Something to tell the other servers.
#[derive(Clone, Debug)]
pub struct Note<'a> {
    /// Where it is left.
    pub key: &'a FleetKey,
    /// What it says.
    pub value: &'a str,
    /// How long it stays. At least a millisecond.
    pub ttl: Duration,
    /// Unless this is empty, a note that has none of these in it is left alone: it is somebody else's.
    pub ours: &'a [String],
}

impl<C> RedisStore<C> {
    /// What the key of a note is called on the server, with the prefix of this store.
    pub fn name_of(&self, key: &FleetKey) -> String {
        format!("{}{key}", self.inner.prefix)
    }

    /// Leaves a note, and gives the one that was there.
    pub async fn exchange(&self, note: &Note<'_>) -> Result<Option<String>, StoreError> {
        let exchanged = timeout_at(Instant::now() + READY_TIMEOUT, self.exchange_with_owner(note)).await;
        Ok(exchanged.unwrap_or(Err(RedisError::NoReply))?)
    }

    async fn exchange_with_owner(&self, note: &Note<'_>) -> Result<Option<String>, RedisError> {
        let key = self.name_of(note.key);
        let ttl_ms = note.ttl.as_millis().max(1).to_string();
        let mut words = vec![
            &b"EVAL"[..],
            SCRIPT.as_bytes(),
            b"1",
            key.as_bytes(),
            note.value.as_bytes(),
            ttl_ms.as_bytes(),
        ];
        words.extend(note.ours.iter().map(|ours| ours.as_bytes()));
        let cluster = match &self.inner.router {
            Router::Single(node) => {
                let (_, mut dialogue) = node.state.open_command_connection().await?;
                return ask(&mut dialogue, &words).await;
            }
            Router::Cluster(cluster) => cluster,
        };
        let (mut node, mut asking) = (cluster.owner(hash_slot(key.as_bytes())).await?, false);
        for _ in 0..HOPS_MAX {
            let (address, mut dialogue) = node.state.open_command_connection().await?;
            if asking {
                dialogue.command(&[b"ASKING"]).await?;
            }
            match ask(&mut dialogue, &words).await {
                Ok(found) => return Ok(found),
                Err(error) => match cluster.follow_redirect(&error, &address) {
                    Some(instead) => (node, asking) = instead,
                    None => return Err(error),
                },
            }
        }
        Err(RedisError::UnexpectedReply("the servers of the cluster send a note in circles"))
    }
}

async fn ask(dialogue: &mut CommandConnection, words: &[&[u8]]) -> Result<Option<String>, RedisError> {
    match dialogue.command(words).await? {
        Reply::Value(found) => Ok(found.map(|found| String::from_utf8_lossy(found).into_owned())),
        _ => Err(RedisError::UnexpectedReply("a note is no text")),
    }
}
