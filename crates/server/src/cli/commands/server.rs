//! Commands about a server and its store.

pub(crate) mod check;
pub(crate) mod config;
pub(crate) mod reset;
pub(crate) mod serve;
pub(crate) mod token;
