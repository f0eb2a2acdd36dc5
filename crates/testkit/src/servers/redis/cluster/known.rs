//! What a node of a cluster knows about another node, from CLUSTER NODES.

use std::ops::Range;

use crate::redis::admin::Admin;
use crate::redis::admin::resp::Value;
use crate::redis::error::AdminError;

/// A line of CLUSTER NODES.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Known {
    pub(super) id: String,
    flags: Vec<String>,
    /// The id of a replica's primary.
    pub(super) primary: Option<String>,
    /// The epoch of its claim to its slots. Higher is newer.
    pub(super) epoch: u64,
    linked: bool,
    /// Its slots, without those that are being moved.
    pub(super) slots: Vec<Range<u16>>,
}

impl Known {
    /// Returns all nodes that the node knows, sorted by id.
    pub(super) fn all(admin: &mut Admin) -> Result<Vec<Known>, AdminError> {
        let text = ask(admin, b"NODES")?;
        let known = text.lines().map(Known::read).collect::<Option<Vec<_>>>();
        let mut known =
            known.ok_or(AdminError::Unexpected { command: "CLUSTER NODES", reply: Value::Simple(text) })?;
        known.sort_by(|one, other| one.id.cmp(&other.id));
        Ok(known)
    }

    /// Whether it is the node that answered.
    pub(super) fn is_itself(&self) -> bool {
        self.flags.iter().any(|flag| flag == "myself")
    }

    /// Whether it is connected and neither failed nor unknown.
    pub(super) fn is_healthy(&self) -> bool {
        self.linked && self.flags.iter().all(|flag| ["myself", "master", "slave"].contains(&flag.as_str()))
    }

    pub(super) fn owns(&self, slot: u16) -> bool {
        self.slots.iter().any(|range| range.contains(&slot))
    }

    /// Returns the fields on which all nodes must agree.
    pub(super) fn part(&self) -> (&str, Option<&str>, &[Range<u16>]) {
        (&self.id, self.primary.as_deref(), &self.slots)
    }

    /// `id address flags primary ping pong epoch link slot...`
    fn read(line: &str) -> Option<Known> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [id, _, flags, primary, _, _, epoch, link, slots @ ..] = words.as_slice() else { return None };
        let settled = slots.iter().filter(|slot| !slot.starts_with('['));
        Some(Known {
            id: (*id).to_owned(),
            flags: flags.split(',').map(str::to_owned).collect(),
            primary: Some(*primary).filter(|&primary| primary != "-").map(str::to_owned),
            epoch: epoch.parse().ok()?,
            linked: *link == "connected",
            slots: settled.map(|slots| range(slots)).collect::<Option<_>>()?,
        })
    }
}

/// `5-9` or `5`.
fn range(slots: &str) -> Option<Range<u16>> {
    let (first, last) = slots.split_once('-').unwrap_or((slots, slots));
    let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
    Some(first..last + 1)
}

/// Returns the fields of CLUSTER INFO.
pub(super) fn info(admin: &mut Admin) -> Result<String, AdminError> {
    ask(admin, b"INFO")
}

/// Returns the id of the node itself.
pub(super) fn my_id(admin: &mut Admin) -> Result<String, AdminError> {
    ask(admin, b"MYID")
}

fn ask(admin: &mut Admin, what: &[u8]) -> Result<String, AdminError> {
    match admin.command(&[b"CLUSTER", what])? {
        Value::Bulk(text) => Ok(String::from_utf8_lossy(&text).into_owned()),
        reply => Err(AdminError::Unexpected { command: "CLUSTER", reply }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_line_is_parsed_without_migrating_slots() {
        let line = "a1 127.0.0.1:1@2,host myself,master - 0 0 7 connected 0-9 12 [93-<-b2] [77->-b2]";
        let known = Known::read(line).expect("it is a line");
        assert_eq!((known.primary.as_ref(), known.epoch, &known.slots), (None, 7, &vec![0..10, 12..13]));
        assert!(
            known.is_itself() && known.is_healthy() && known.owns(9) && known.owns(12) && !known.owns(10)
        );
        let failed = Known::read("b2 127.0.0.1:3@4 slave,fail? a1 0 0 7 connected").expect("it is a line");
        assert!(!failed.is_healthy() && !failed.is_itself());
        assert_eq!(failed.primary.as_deref(), Some("a1"));
    }
}
