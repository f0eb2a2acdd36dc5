//! Test tools that prove Tollgate right, in six parts:
//!
//! - [`oracle`]: naive models of the algorithms, and the differential test that compares them with core, with the Lua twins
//!   and with planted mutants.
//! - `store`: the conformance suite that every store must pass ([`conformance`]), the [`model`] of Plans that it compares
//!   with, the Lua [`twin`]s as machines, and a [`naive`] limiter that must fail.
//! - `servers`: real Redis servers, sentinels and clusters ([`redis`]), a real PostgreSQL ([`postgres`]), a [`fault_proxy`], fault [`drill`]s under load, a real
//!   `tollgate serve` ([`serving`]), other programs that tests run ([`tools`]), and [`random`] numbers from a seed.
//! - [`chaos`]: faults on real processes under load, as a table.
//! - [`history`]: the history checker.
//! - [`simulation`]: servers with a failing store, in one thread and on virtual time, from a seed.

pub mod chaos;
pub mod history;
pub mod oracle;
mod servers;
pub mod simulation;
mod store;

pub use servers::{callgrind, drill, fault_proxy, http1, http2, postgres, random, redis, serving, tools};
pub use store::{conformance, model, naive, twin};
