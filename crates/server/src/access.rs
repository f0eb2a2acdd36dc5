//! Scopes, and the tokens that give them.

mod digest;
mod scopes;
mod token;

pub(crate) use digest::Digest;
pub(crate) use scopes::Scopes;
pub(crate) use token::{Access, BoundAttributes, Token};
