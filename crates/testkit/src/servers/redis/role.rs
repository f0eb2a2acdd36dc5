//! The replication role of a server.

use std::time::Duration;

use super::admin::Admin;
use super::admin::resp::Value;
use super::error::{AdminError, Error};
use super::server::Server;
use super::wait::{NotYet, until};

/// Pause between polls: on an idle machine, a change is seen at most this late.
pub(super) const PAUSE: Duration = Duration::from_millis(2);

/// Timeout of a poll. A stopped process accepts connections but never replies.
pub(super) const ANSWER_MAX: Duration = Duration::from_millis(100);

/// The reply to ROLE of a server with data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Role {
    /// A primary.
    Primary {
        /// Bytes of writes so far.
        offset: i64,
        /// The ports that its replicas announce.
        replicas: Vec<u16>,
    },
    /// A replica.
    Replica {
        /// The port of its configured primary.
        primary: u16,
        /// Whether it is synchronised and receives new writes.
        connected: bool,
        /// Bytes of writes so far.
        offset: i64,
    },
}

impl Role {
    /// Queries the role of a server.
    pub(super) fn of(admin: &mut Admin) -> Result<Role, AdminError> {
        let reply = admin.command(&[b"ROLE"])?;
        Role::read(&reply).ok_or(AdminError::Unexpected { command: "ROLE", reply })
    }

    fn read(reply: &Value) -> Option<Role> {
        let Value::Array(parts) = reply else { return None };
        match parts.as_slice() {
            [Value::Bulk(name), Value::Integer(offset), Value::Array(replicas)] if name == b"master" => {
                let replicas = replicas.iter().map(port_of_replica).collect::<Option<_>>()?;
                Some(Role::Primary { offset: *offset, replicas })
            }
            [Value::Bulk(name), _, Value::Integer(port), Value::Bulk(state), Value::Integer(offset)]
                if name == b"slave" =>
            {
                let primary = u16::try_from(*port).ok()?;
                Some(Role::Replica { primary, connected: state == b"connected", offset: *offset })
            }
            _ => None,
        }
    }
}

/// Polls the role of one server, over one connection as long as that works.
#[derive(Debug)]
pub(super) struct RoleWatch<'a> {
    server: &'a Server,
    admin: Option<Admin>,
}

impl<'a> RoleWatch<'a> {
    pub(super) fn new(server: &'a Server) -> RoleWatch<'a> {
        RoleWatch { server, admin: None }
    }

    pub(super) fn role(&mut self) -> Result<Role, AdminError> {
        let admin = match &mut self.admin {
            Some(admin) => admin,
            none => none.insert(self.server.admin_within(ANSWER_MAX)?),
        };
        Role::of(admin)
    }
}

/// Waits until this server is linked to its primary and has received all writes up to this offset.
pub(super) fn wait_caught_up(replica: &Server, written: i64, within: Duration) -> Result<(), Error> {
    let mut watch = RoleWatch::new(replica);
    until("in sync", within, PAUSE, || match watch.role()? {
        Role::Replica { connected: true, offset, .. } if offset >= written => Ok(()),
        role => Err(NotYet(format!("{role:?}, and the primary was at {written}"))),
    })
}

fn port_of_replica(replica: &Value) -> Option<u16> {
    let Value::Array(parts) = replica else { return None };
    match parts.as_slice() {
        [_, Value::Bulk(port), _] => str::from_utf8(port).ok()?.parse().ok(),
        _ => None,
    }
}
