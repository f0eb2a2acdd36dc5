//! What every connection of every transport works with.

use std::net::IpAddr;

use tokio_util::sync::CancellationToken;
use tollgate::core::TrustedProxies;
use tollgate::headers::Dialect;

use super::access::{Access, Scopes};
use super::gate::Gate;

/// One for the whole server.
pub(crate) struct Shared {
    pub(crate) gate: Gate,
    pub(crate) access: Access,
    /// The header fields that tell clients where they stand.
    pub(crate) dialect: Dialect,
    /// Who is believed when it says for whom it asks.
    pub(crate) proxies: TrustedProxies,
    /// Cancelled when the server is to end: no new work, but what has begun is answered.
    pub(crate) ending: CancellationToken,
}

/// Who is connected.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    pub(crate) address: IpAddr,
    /// What it may do without showing a token: what everybody may, or more by its certificate.
    pub(crate) scopes: Scopes,
}
