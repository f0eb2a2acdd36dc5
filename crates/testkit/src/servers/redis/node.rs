//! A server of a set or cluster that others know by its port, with an optional proxy in front of it.

use super::error::Error;
use super::server::{Builder, Server};
use crate::fault_proxy::{FaultProxy, Faults};

/// How a node is cut off from others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cut {
    /// No bytes arrive: connections stay open, new ones are accepted, and nothing is answered.
    Silent,
    /// Connections are closed, and new ones are refused.
    Refused,
}

#[derive(Debug)]
pub(super) struct Node {
    pub(super) server: Server,
    proxy: Option<FaultProxy>,
}

impl Node {
    pub(super) fn start(builder: Builder) -> Result<Node, Error> {
        Ok(Node { server: builder.start()?, proxy: None })
    }

    /// Starts the server behind a proxy, whose port it announces with this option.
    pub(super) fn start_behind_proxy(builder: Builder, announce: &str, seed: u64) -> Result<Node, Error> {
        let mut server = builder.start()?;
        let reached = server.tls_port().unwrap_or(server.port());
        let proxy = FaultProxy::start(reached, seed).map_err(Error::io("start a proxy"))?;
        server.restart_with(&[announce, &proxy.port().to_string()])?;
        Ok(Node { server, proxy: Some(proxy) })
    }

    /// Returns the port that others connect to: that of the proxy, or else the TLS port if there is one.
    pub(super) fn port(&self) -> u16 {
        let own = self.server.tls_port().unwrap_or(self.server.port());
        self.proxy.as_ref().map_or(own, FaultProxy::port)
    }

    pub(super) fn proxy(&self) -> Result<&FaultProxy, Error> {
        self.proxy.as_ref().ok_or(Error::NoProxy)
    }

    pub(super) fn partition(&self, cut: Cut) -> Result<(), Error> {
        let (half_open, refuse) = (cut == Cut::Silent, cut == Cut::Refused);
        let proxy = self.proxy()?;
        proxy.set(Faults { half_open, refuse, ..Faults::default() }).map_err(Error::io("cut a node off"))?;
        if refuse {
            proxy.disconnect();
        }
        Ok(())
    }

    /// Closes connections that have lost bytes, because they cannot be used any more.
    pub(super) fn heal(&self) -> Result<(), Error> {
        let proxy = self.proxy()?;
        proxy.set(Faults::default()).map_err(Error::io("reach a node again"))?;
        proxy.disconnect();
        Ok(())
    }
}
