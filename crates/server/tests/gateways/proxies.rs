//! The gateways, with the tests that only one of them has.

pub(crate) mod caddy;
pub(crate) mod envoy;
pub(crate) mod haproxy;
pub(crate) mod nginx;
pub(crate) mod traefik;
