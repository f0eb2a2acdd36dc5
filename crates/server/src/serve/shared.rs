//! What every connection of every transport works with.

use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tollgate::core::{Prefixes, TrustedProxies};
use tollgate::headers::Dialect;

use super::fleet::Others;
use super::gate::Gate;
use super::observe::{Exposition, Kind};
use super::rules_in_force::RulesOrigin;
use crate::access::{Access, Scopes};
use crate::serve::edge::grpc::Messages;
use crate::serve::listen::connections::Connections;
use crate::serve::listen::tls::Tls;

/// One for the whole server.
pub(crate) struct Shared {
    pub(crate) gate: Gate,
    pub(crate) rules: RulesOrigin,
    /// Replaced when the configuration is read again.
    pub(crate) doors: ArcSwap<Doors>,
    pub(crate) tls: Option<Tls>,
    pub(crate) connections: Arc<Connections>,
    /// The header fields that tell clients where they stand.
    pub(crate) dialect: Dialect,
    /// What is made of messages by gRPC.
    pub(crate) grpc: Messages,
    /// Who is believed when it says for whom it asks.
    pub(crate) proxies: TrustedProxies,
    /// How much of an address tells clients apart.
    pub(crate) prefixes: Prefixes,
    /// What the servers are like that share the store, if any may.
    pub(crate) others: Option<watch::Receiver<Others>>,
    /// Cancelled when the server is to end: no new work, but what has begun is answered.
    pub(crate) ending: CancellationToken,
}

/// Who may do what.
pub(crate) struct Doors {
    pub(crate) tokens: Access,
    /// What everybody may do.
    pub(crate) anonymous: Scopes,
    /// What the bearer of a certificate may do.
    pub(crate) certified: Scopes,
}

/// Who is connected.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    pub(crate) address: IpAddr,
    /// Whether it has shown a certificate that we trust.
    pub(crate) is_certified: bool,
}

impl Doors {
    /// Whether anybody without a certificate could be let in.
    pub(crate) fn accepts_anonymous(&self) -> bool {
        !self.tokens.is_empty() || !self.anonymous.is_none()
    }

    /// What a peer may do without showing a token.
    pub(crate) fn scopes_of(&self, peer: &Peer) -> Scopes {
        if peer.is_certified { self.anonymous.and(self.certified) } else { self.anonymous }
    }
}

impl Shared {
    /// What the bearer of this token may do; `None` if nobody knows it.
    pub(crate) fn scopes_of(&self, token: &[u8]) -> Option<Scopes> {
        self.doors.load().tokens.scopes_of(token)
    }

    /// Everything that is counted, as Prometheus reads it.
    pub(crate) fn metrics(&self) -> String {
        let mut page = Exposition::default();
        self.gate.write(&mut page);
        self.connections.write(&mut page);
        let rules = self.rules.in_force();
        page.single(
            "rate_limit_rules_version",
            Kind::Gauge,
            "How often the rules have been replaced since the start.",
            rules.version,
        );
        page.single(
            "rate_limit_rules_refused",
            Kind::Gauge,
            "Whether the rules found last are wrong, and older ones are in force.",
            u8::from(rules.refused.is_some()),
        );
        if let Some(others) = &self.others {
            others.borrow().write(&mut page);
        }
        let mut family =
            page.family("tollgate_build_info", Kind::Gauge, "Always 1; the version is in the label.");
        family.sample(&[("version", env!("CARGO_PKG_VERSION"))], 1);
        page.into_text()
    }
}
