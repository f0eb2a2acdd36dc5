//! Notes by which servers on one store compare themselves: small texts, each under its own key.

use std::fmt;
use std::time::Duration;

use tollgate::core::key::KeyspaceError;
use tollgate::core::{Keyspace, StoreError};
use tollgate::store::redis::RedisStore;

const SCRIPT: &str = include_str!("exchange.lua");

/// The key of a note. All keys of a namespace are in one hash slot. No rule id begins with `@`.
#[derive(Clone, Debug)]
pub(crate) struct FleetKey {
    /// Its rule id is the name of the note.
    keyspace: Keyspace,
}

/// A note for the other servers.
#[derive(Clone, Debug)]
pub(crate) struct Note<'a> {
    pub(crate) key: &'a FleetKey,
    pub(crate) text: &'a str,
    /// At least one millisecond.
    pub(crate) ttl: Duration,
    /// Unless this is empty, the previous note is replaced only if it contains one of these.
    pub(crate) ours: &'a [String],
}

impl FleetKey {
    /// The key of the note `name` among the servers of `namespace`.
    pub(crate) fn new(namespace: &str, name: &str) -> Result<FleetKey, KeyspaceError> {
        Ok(FleetKey { keyspace: Keyspace::new(namespace, name)? })
    }
}

/// The only place where the key is written as a string.
impl fmt::Display for FleetKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tg:1:{}:{{fleet}}:@{}", self.keyspace.namespace(), self.keyspace.rule())
    }
}

impl Note<'_> {
    /// Writes the note, and returns the previous one.
    pub(crate) async fn exchange(&self, store: &RedisStore) -> Result<Option<String>, StoreError> {
        let ttl_ms = self.ttl.as_millis().max(1).to_string();
        let mut args = vec![self.text, &ttl_ms];
        args.extend(self.ours.iter().map(String::as_str));
        store.eval_on_key_owner(SCRIPT, &self.key.to_string(), &args).await
    }
}
