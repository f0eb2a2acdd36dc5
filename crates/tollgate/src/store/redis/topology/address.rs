//! Host and port of a server.

use std::fmt;
use std::sync::Arc;

/// Host and port of a server.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Address {
    pub(crate) host: Arc<str>,
    pub(crate) port: u16,
}

impl Address {
    /// `host` may be an IPv6 address in brackets, as in a URL.
    pub(crate) fn new(host: &str, port: u16) -> Address {
        Address { host: host.trim_start_matches('[').trim_end_matches(']').into(), port }
    }

    /// Parses `host:port` as servers write it, without brackets. An empty host means that of the server that sent it.
    pub(crate) fn parse(text: &str, sender: &Address) -> Option<Address> {
        let (host, port) = text.rsplit_once(':').filter(|(host, _)| *host != "?")?;
        let host = if host.is_empty() { &sender.host } else { host };
        Some(Address::new(host, port.parse().ok()?))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Address { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_as_servers_write_them() {
        let sender = Address::new("10.0.0.9", 1);
        let parse = |text| Address::parse(text, &sender).map(|address| address.to_string());
        assert_eq!(parse("127.0.0.1:7000").as_deref(), Some("127.0.0.1:7000"));
        assert_eq!(parse("2001:db8::1:7000").as_deref(), Some("[2001:db8::1]:7000"));
        assert_eq!(parse(":7000").as_deref(), Some("10.0.0.9:7000"));
        assert_eq!((parse("nonsense"), parse("?:7000")), (None, None));
    }
}
