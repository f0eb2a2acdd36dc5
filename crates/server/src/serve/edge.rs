//! The transports. Each one translates between its protocol and a check, and does nothing else.
//!
//! What they share is here: the limits of a request, the authorisation of callers, and the mapping of errors.

pub(crate) mod auth;
pub(crate) mod calls;
pub(crate) mod error;
pub(crate) mod excerpt;
pub(crate) mod grpc;
pub(crate) mod http;
pub(crate) mod lossless_text;
pub(crate) mod request;
pub(crate) mod resp;
