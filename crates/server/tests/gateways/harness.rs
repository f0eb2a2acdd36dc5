//! What the tests run beside Tollgate: gateways as their pages show them, the servers behind them, and clients.

pub(crate) mod backend;
pub(crate) mod model;
pub(crate) mod recipe;
pub(crate) mod response;
pub(crate) mod shop;
pub(crate) mod site;
