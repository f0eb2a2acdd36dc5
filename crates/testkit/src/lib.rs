//! Proof for Tollgate: naive oracles, suites that compare them with the real thing, planted mutants that the
//! suites must catch, and a checker of recorded histories.

pub mod conformance;
pub mod differential;
pub mod history;
pub mod model;
pub mod oracle;
pub mod suite;
