//! Scopes, and the tokens that give them.

mod digest;
mod in_flight;
mod scopes;
mod token;

pub(crate) use digest::Digest;
pub(crate) use in_flight::InFlight;
pub(crate) use scopes::Scopes;
pub(crate) use token::{Access, Binding, Token};
