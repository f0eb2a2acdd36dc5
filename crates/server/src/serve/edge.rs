//! The transports. Each one translates between its protocol and a check, and does nothing else.

pub(crate) mod grpc;
pub(crate) mod http;
pub(crate) mod resp;
