//! What a sentinel knows about its set.

use std::collections::BTreeMap;
use std::time::Duration;

use super::NAME;
use crate::redis::admin::Admin;
use crate::redis::admin::resp::Value;
use crate::redis::error::{AdminError, Error};
use crate::redis::server::Server;
use crate::redis::wait::NotYet;

/// Timeout of a query. A stopped sentinel accepts connections but never replies.
const ANSWER_MAX: Duration = Duration::from_millis(500);

/// The servers that a sentinel knows, if it sees all of them as healthy.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct View {
    pub(super) primary: u16,
    /// Ports of the replicas, in any order.
    pub(super) replicas: Vec<u16>,
    /// Number of other sentinels.
    pub(super) others: usize,
}

type Fields = BTreeMap<String, String>;

impl View {
    pub(super) fn of(sentinel: &Server) -> Result<View, NotYet> {
        let mut admin = sentinel.admin_within(ANSWER_MAX)?;
        let primary = ask(&mut admin, b"MASTER").and_then(|reply| fields(&reply))?;
        let replicas = list(ask(&mut admin, b"REPLICAS")?)?;
        let others = list(ask(&mut admin, b"SENTINELS")?)?;
        check_flags(&primary, &["master"])?;
        replicas.iter().try_for_each(|replica| check_flags(replica, &["slave"]))?;
        // In Valkey, a sentinel keeps the down flag even after the primary is reachable again.
        others.iter().try_for_each(|other| check_flags(other, &["sentinel", "master_down"]))?;
        let replicas = replicas.iter().map(port).collect::<Result<_, _>>()?;
        Ok(View { primary: port(&primary)?, replicas, others: others.len() })
    }

    /// Returns the port of the primary that a sentinel announces.
    pub(super) fn primary_port(sentinel: &Server) -> Result<u16, Error> {
        let mut admin = sentinel.admin_within(ANSWER_MAX)?;
        let reply = ask(&mut admin, b"GET-MASTER-ADDR-BY-NAME")?;
        let port = match &reply {
            Value::Array(parts) => parts.get(1).and_then(text).and_then(|port| port.parse().ok()),
            _ => None,
        };
        port.ok_or_else(|| unexpected(reply).into())
    }

    pub(super) fn same(&self, other: &View) -> bool {
        let sorted = |view: &View| {
            let mut replicas = view.replicas.clone();
            replicas.sort_unstable();
            replicas
        };
        (self.primary, self.others) == (other.primary, other.others) && sorted(self) == sorted(other)
    }
}

/// Other flags mean that it is down or changes its role.
fn check_flags(known: &Fields, flags: &[&str]) -> Result<(), NotYet> {
    let linked = known.get("master-link-status").is_none_or(|status| status == "ok");
    let found = known.get("flags").map(|found| found.split(',').all(|flag| flags.contains(&flag)));
    if linked && found == Some(true) { Ok(()) } else { Err(NotYet(format!("a sentinel knows {known:?}"))) }
}

fn port(known: &Fields) -> Result<u16, NotYet> {
    let port = known.get("port").and_then(|port| port.parse().ok());
    port.ok_or_else(|| NotYet(format!("no port in {known:?}")))
}

fn ask(admin: &mut Admin, what: &[u8]) -> Result<Value, AdminError> {
    admin.command(&[b"SENTINEL", what, NAME.as_bytes()])
}

fn list(reply: Value) -> Result<Vec<Fields>, AdminError> {
    match reply {
        Value::Array(all) => all.iter().map(fields).collect(),
        reply => Err(unexpected(reply)),
    }
}

/// Reads alternating names and values.
fn fields(reply: &Value) -> Result<Fields, AdminError> {
    let Value::Array(parts) = reply else { return Err(unexpected(reply.clone())) };
    let pairs = parts.chunks_exact(2).map(|pair| Some((text(&pair[0])?, text(&pair[1])?)));
    pairs.collect::<Option<Fields>>().ok_or_else(|| unexpected(reply.clone()))
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::Bulk(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        _ => None,
    }
}

fn unexpected(reply: Value) -> AdminError {
    AdminError::Unexpected { command: "SENTINEL", reply }
}
