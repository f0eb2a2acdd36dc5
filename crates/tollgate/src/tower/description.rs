//! The attributes of one HTTP request.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};

use http::request::Parts;
use smallvec::SmallVec;
use tollgate_core::{Attributes, ClientAddress, Prefixes, TrustedProxies, client_address};

/// The attribute that conditions test as an address, and that is counted as a block.
const IP: &str = "ip";

/// Most requests have at most this many attributes.
const INLINE: usize = 8;

/// Collects the attributes of one request. Values are borrowed from the request or owned.
#[derive(Default)]
pub struct Description<'r> {
    attributes: SmallVec<[(Cow<'r, str>, Cow<'r, str>); INLINE]>,
    /// The whole address of which `ip` is the block.
    client_address: Option<IpAddr>,
}

impl<'r> Description<'r> {
    /// Sets an attribute. A second value for the same name replaces the first.
    pub fn set(&mut self, name: impl Into<Cow<'r, str>>, value: impl Into<Cow<'r, str>>) {
        let (name, value) = (name.into(), value.into());
        if name == IP {
            self.client_address = None;
        }
        match self.attributes.iter_mut().find(|(known, _)| *known == name) {
            Some((_, old)) => *old = value,
            None => self.attributes.push((name, value)),
        }
    }

    /// Sets `method`, `path`, and `ip` if the extensions hold the peer's address as a [`SocketAddr`] or an [`IpAddr`]. This
    /// is the default of a layer.
    ///
    /// Reads no header, because clients choose their values. The path is taken as it was sent, without the query; rules see
    /// its readings.
    pub fn request(&mut self, request: &'r Parts) {
        self.set("method", request.method.as_str());
        self.set("path", request.uri.path());
        let socket = request.extensions.get::<SocketAddr>().map(|peer| peer.ip());
        if let Some(peer) = socket.or_else(|| request.extensions.get::<IpAddr>().copied()) {
            self.peer(peer);
        }
    }

    /// Sets `ip` for a client that is connected directly. An IPv6 client counts as its whole /64, because it can use any
    /// address in it.
    pub fn peer(&mut self, peer: IpAddr) {
        self.client(client_address::<&[u8]>(peer, &[], &TrustedProxies::default()));
    }

    /// Sets `ip` for a client behind proxies, as found by [`client_address()`]. If your rules favour an address, look at
    /// [`is_certain`](ClientAddress::is_certain) first.
    pub fn client(&mut self, client: ClientAddress) {
        self.set(IP, client.block(Prefixes::default()).to_string());
        self.client_address = Some(client.ip());
    }

    pub(super) fn attributes(&self) -> Attributes<'_> {
        let mut attributes: Attributes<'_> =
            self.attributes.iter().map(|(name, value)| (&**name, &**value)).collect();
        if let Some(address) = self.client_address {
            attributes.set_client_address(address);
        }
        attributes
    }
}
