//! Admission control for Rust services: may this request, job or token spend proceed right now?
//!
//! Rules say who may do how much. A [`Limiter`] holds rules and a store, and answers one question:
//!
//! ```
//! use tollgate::{Attributes, Limiter};
//!
//! let limiter = Limiter::from_yaml("
//!     version: 1
//!     rules:
//!       - { id: search-per-key, match: { action: search }, per: api_key, limit: { token-bucket: 2/s, burst: 5 } }
//! ")?;
//! let request = Attributes::from([("action", "search"), ("api_key", "k-123")]);
//! assert!(limiter.check_now(&request)?.allowed);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A request is what you say of it: names and values, the [`Attributes`]. Every rule it matches is asked in one step. If
//! all admit, all are charged; if one refuses, none is. The answer is a [`Decision`]. A refusal is a value, not an error;
//! an `Err` means that there is no answer.
//!
//! # Which method when
//!
//! | you want to | call | and then |
//! |---|---|---|
//! | let it pass or not | [`check`](Limiter::check) | look at `allowed`, [`retry_after`](Decision::retry_after), [`headline`](Decision::headline) |
//! | only look | [`peek`](Limiter::peek) | nothing was charged |
//! | wait for your turn | [`acquire`](Limiter::acquire) | keep the [`Permit`] while you work |
//! | hold a place while you work | [`lease`](Limiter::lease) | drop the [`Permit`], or [`renew`](Permit::renew) it in time |
//! | spend what you cannot know yet | [`reserve`](Limiter::reserve) | [`settle`](Reservation::settle) what it came to |
//! | undo | [`refund`](Limiter::refund) | each rule gives back what it still counts |
//! | say how an attempt ended | [`report`](Limiter::report) | a penalty grows, or is cleared |
//! | forgive | [`reset`](Limiter::reset) | the subject starts afresh |
//! | change the rules | [`replace_rules_yaml`](Limiter::replace_rules_yaml) | counts stay |
//! | know why | [`explain`](Limiter::explain) | every rule, every number, every reason |
//!
//! They are all async, for stores that are elsewhere. With the store in memory nothing is ever awaited, and
//! [`check_now`](Limiter::check_now), [`peek_now`](Limiter::peek_now), [`refund_now`](Limiter::refund_now) and
//! [`explain_now`](Limiter::explain_now) need no runtime:
//!
//! ```
//! use tollgate::{Attributes, Limiter, Request};
//!
//! let limiter = Limiter::from_yaml("
//!     version: 1
//!     rules: [{ id: daily, per: user, limit: { fixed-window: 10/d } }]
//! ")?;
//! let user = Attributes::from([("user", "u-7")]);
//!
//! let spent = limiter.check_now(Request::new(&user).cost(8))?;
//! let refused = limiter.check_now(Request::new(&user).cost(3))?;
//! assert_eq!(refused.headline().map(|rule| rule.id()), Some("daily"));
//! assert!(refused.retry_after().is_some(), "the next day helps");
//!
//! let why = limiter.explain_now(Request::new(&user).cost(3)).to_string();
//! assert!(why.contains("remaining 2: 8 of 10 are used in this window"), "{why}");
//!
//! limiter.refund_now(&spent)?;
//! assert!(limiter.check_now(Request::new(&user).cost(3))?.allowed);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A worker waits, and is told at once if it would wait too long:
//!
//! ```
//! use std::time::Duration;
//! use tollgate::{Attributes, Limiter};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let limiter = Limiter::from_yaml("
//!     version: 1
//!     rules: [{ id: calls, per: target, limit: { leaky-bucket: 100/s, queue: 3 } }]
//! ")?;
//! let target = Attributes::from([("target", "hooks.example.com")]);
//! for _ in 0..3 {
//!     let permit = limiter.acquire(&target, Duration::from_secs(1)).await?;
//!     // Call. Ten milliseconds have passed since the last one.
//!     drop(permit);
//! }
//! # Ok(()) }
//! ```
//!
//! # Rules
//!
//! [`Builder::rules_file`](limiter::Builder::rules_file) reads them from a file. A wrong file is refused whole, with every
//! problem, its line and its fix. [`rules`] reads and lints them, The same rules decide the
//! same everywhere: here, on the command line (`tollgate check`, `tollgate explain`), and in servers.
//!
//! # Stores
//!
//! A [`Store`](core::Store) turns a whole check into one indivisible step. [`MemoryStore`] is exact within one process and the
//! default; [`RedisStore`](store::redis::RedisStore) is exact for any number of them, in one round trip; [`Builder::store`](limiter::Builder::store) takes any other, or one on a [`Clock`] of your own, such as the
//! [`ManualClock`] of tests. Subjects reach a store as keyed hashes only: servers that share one must share the key, see
//! [`Builder::hash_key`](limiter::Builder::hash_key). Where one limit is all you need, [`Keyed`] leaves rules out.
//!
//! # When the store fails
//!
//! A store that cannot answer is no error either: each rule's `on_failure` answers for it, and the decision says so in its
//! [`source`](core::decision::Source) and in `degraded`. The store in memory does not fail.
//!
//! # HTTP
//!
//! [`tower`] puts a limiter in front of axum, tonic or any tower service. [`headers`] tells clients where they stand, in
//! the dialects they know, [`problem`] is the body of a refusal, and [`Decision::to_json`] the whole decision for programs.

pub mod clock;
mod decision_json;
pub mod headers;
mod json;
pub mod keyed;
pub mod limiter;
pub mod problem;
pub mod rules;
pub mod shorthand;
pub mod store;
#[cfg(feature = "tower")]
pub mod tower;

pub use clock::{Clock, FastClock, ManualClock, SystemClock};
pub use keyed::Keyed;
pub use limiter::{Decision, Limiter, Permit, Reservation};
pub use store::memory::MemoryStore;
pub use tollgate_core as core;
pub use tollgate_core::Attributes;
pub use tollgate_core::rules::Request;

/// The guide's programs are compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guides/embed.md")]
struct Guide;

#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
