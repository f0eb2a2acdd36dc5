//! Sockets, TLS and worker threads: how connections reach a transport.

pub(crate) mod connections;
pub(crate) mod listener;
pub(crate) mod open_files;
pub(crate) mod proxy_protocol;
pub(crate) mod tls;
pub(crate) mod worker;
