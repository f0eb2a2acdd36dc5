//! Moves a slot from one primary to another, step by step.

use super::Cluster;
use crate::redis::admin::resp::Value;
use crate::redis::error::{AdminError, Error};

/// Timeout for the target to store some keys.
const MIGRATE_MAX_MS: &str = "5000";

/// A slot that is being moved. If it is dropped before [`SlotMove::finish`], the slot stays half moved.
#[derive(Debug)]
pub struct SlotMove<'a> {
    cluster: &'a Cluster,
    slot: u16,
    from: usize,
    to: usize,
}

impl<'a> SlotMove<'a> {
    pub(super) fn begin(cluster: &'a Cluster, slot: u16, to: usize) -> Result<SlotMove<'a>, Error> {
        let slot_move = SlotMove { cluster, slot, from: cluster.owner(slot)?, to };
        // The target comes first. Otherwise a client could be redirected to a target that does not expect it.
        slot_move.set(to, &["IMPORTING", &cluster.ids[slot_move.from]])?;
        slot_move.set(slot_move.from, &["MIGRATING", &cluster.ids[to]])?;
        Ok(slot_move)
    }

    /// Returns the source primary.
    pub fn from(&self) -> usize {
        self.from
    }

    /// Returns the target primary.
    pub fn to(&self) -> usize {
        self.to
    }

    /// Moves up to this many keys and returns how many were moved: 0 if no key is left.
    pub fn migrate(&self, keys_max: usize) -> Result<usize, Error> {
        let mut source = self.cluster.admin(self.from)?;
        let (slot, count) = (self.slot.to_string(), keys_max.to_string());
        let listed = ["CLUSTER", "GETKEYSINSLOT", &slot, &count];
        let keys = match source.command(&listed.map(str::as_bytes))? {
            Value::Array(keys) => keys,
            reply => return Err(AdminError::Unexpected { command: "CLUSTER GETKEYSINSLOT", reply }.into()),
        };
        if keys.is_empty() {
            return Ok(0);
        }
        let port = self.cluster.node(self.to).cluster_port().to_string();
        let mut command =
            ["MIGRATE", "127.0.0.1", &port, "", "0", MIGRATE_MAX_MS].map(str::as_bytes).to_vec();
        if let Some(password) = &self.cluster.options.password {
            command.extend(["AUTH", password].map(str::as_bytes));
        }
        command.push(b"KEYS");
        command.extend(keys.iter().filter_map(|key| match key {
            Value::Bulk(key) => Some(key.as_slice()),
            _ => None,
        }));
        source.command(&command)?;
        Ok(keys.len())
    }

    /// Makes the target the owner: first in the target, so that no client is redirected to a node that refuses, then in the
    /// source and the other primaries. Replicas learn it later; [`Cluster::wait_settled`] waits for that.
    ///
    /// The target claims the slot with the newest epoch that it knows. If the source's claim were newer, a delayed message
    /// about it would make the target give the slot back after the source released it, and no node would own it.
    pub fn finish(self) -> Result<(), Error> {
        self.cluster.wait_for_epochs(self.to)?;
        let mut nodes = vec![self.to, self.from];
        nodes
            .extend(self.cluster.primaries().into_iter().filter(|node| ![self.to, self.from].contains(node)));
        nodes.into_iter().try_for_each(|node| self.set(node, &["NODE", &self.cluster.ids[self.to]]))
    }

    fn set(&self, node: usize, what: &[&str]) -> Result<(), Error> {
        let slot = self.slot.to_string();
        let mut command = vec!["CLUSTER", "SETSLOT", &slot];
        command.extend(what);
        let command: Vec<&[u8]> = command.into_iter().map(str::as_bytes).collect();
        self.cluster.admin(node)?.command(&command)?;
        Ok(())
    }
}
