//! Proof for Tollgate: naive oracles, suites that compare them with the real thing, planted mutants that the
//! suites must catch, and a checker of recorded histories.

pub mod conformance;
mod dice;
pub mod differential;
pub mod drill;
pub mod fault_proxy;
pub mod history;
pub mod model;
pub mod naive;
pub mod oracle;
pub mod redis;
pub mod serving;
pub mod suite;
pub mod tools;
pub mod twin;
mod unpacked;
