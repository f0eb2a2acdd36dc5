//! What a request says about itself, collected by whoever knows how to read it.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};

use http::request::Parts;
use smallvec::SmallVec;
use tollgate_core::{Attributes, ClientAddress, Prefixes, TrustedProxies, client_address};

/// As many attributes as most requests have.
const INLINE: usize = 8;

/// The attributes of one request: borrowed from it where they stand there, owned where they had to be made.
#[derive(Default)]
pub struct Description<'r> {
    attributes: SmallVec<[(Cow<'r, str>, Cow<'r, str>); INLINE]>,
}

impl<'r> Description<'r> {
    /// Gives `name` this value in place of any it had.
    pub fn set(&mut self, name: impl Into<Cow<'r, str>>, value: impl Into<Cow<'r, str>>) {
        let (name, value) = (name.into(), value.into());
        match self.attributes.iter_mut().find(|(known, _)| *known == name) {
            Some((_, old)) => *old = value,
            None => self.attributes.push((name, value)),
        }
    }

    /// `method` and `path` of the request, and `ip` if its extensions hold the address of the peer as a [`SocketAddr`]
    /// or an [`IpAddr`]. This is what a layer does that was not told otherwise.
    ///
    /// No header is read: a client can write into it what it likes. The path is taken as it was sent, without the
    /// query.
    pub fn request(&mut self, request: &'r Parts) {
        self.set("method", request.method.as_str());
        self.set("path", request.uri.path());
        let socket = request.extensions.get::<SocketAddr>().map(|peer| peer.ip());
        if let Some(peer) = socket.or_else(|| request.extensions.get::<IpAddr>().copied()) {
            self.peer(peer);
        }
    }

    /// `ip`, for a client that is connected directly. An IPv6 client counts as its whole /64, because it may have as
    /// many addresses in there as it likes.
    pub fn peer(&mut self, peer: IpAddr) {
        self.client(client_address::<&[u8]>(peer, &[], &TrustedProxies::default()));
    }

    /// `ip`, for a client that was found behind proxies with [`client_address()`]. Look at
    /// [`is_certain`](ClientAddress::is_certain) first if your rules favour an address.
    pub fn client(&mut self, client: ClientAddress) {
        self.set("ip", client.block(Prefixes::default()).to_string());
    }

    pub(super) fn attributes(&self) -> Attributes<'_> {
        self.attributes.iter().map(|(name, value)| (&**name, &**value)).collect()
    }
}
