//! Admission control for Rust services: may this request, job or token spend proceed right now?
//!
//! A rules file says which requests are limited, per which subject, and how. A limiter checks requests against it:
//!
//! ```
//! use tollgate::LocalLimiter;
//!
//! let limiter = LocalLimiter::from_yaml("
//!     version: 1
//!     rules:
//!       - { id: search-per-key, match: { action: search }, per: api_key, limit: { token-bucket: 2/s, burst: 5 } }
//! ")?;
//! let decision = limiter.check([("action", "search"), ("api_key", "k-123")])?;
//! assert!(decision.allowed());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A [`Request`] is a list of attributes, a cost and perhaps an id. A check asks every rule that matches the request in
//! one atomic step. If all of them admit it, all are charged; if one refuses, none is. The result is a [`Decision`]. A
//! refusal is a value, not an error: `Err` means that the check could not be decided.
//!
//! # Which limiter
//!
//! | type | store | methods |
//! |---|---|---|
//! | [`LocalLimiter`] | memory, in this process | synchronous |
//! | [`Limiter`] | memory, Redis or your own, chosen at run time | `async` |
//! | [`Keyed`] | memory, in this process | one [`Limit`] for any number of keys, without rules |
//!
//! # Which method
//!
//! | to | call | then |
//! |---|---|---|
//! | allow or refuse | [`check`](Limiter::check) | see [`allowed`](Decision::allowed), [`retry_after`](Decision::retry_after) |
//! | look without charging | [`peek`](Limiter::peek) | |
//! | wait for admission | [`acquire`](Limiter::acquire) | keep the [`Permit`] while you work |
//! | limit what runs at the same time | [`lease`](Limiter::lease) | drop the [`Permit`]; [`keep_alive`](Permit::keep_alive) for long work |
//! | spend an unknown cost | [`reserve`](Limiter::reserve) | [`extend`](Reservation::extend) it, [`settle`](Reservation::settle) the actual cost |
//! | book what was already spent | [`record`](Limiter::record) | see [`overdraft`](RuleRecord::overdraft) |
//! | take back without a receipt | [`credit`](Limiter::credit) | limits hold net of credits |
//! | see what a subject has used | [`usage`](Limiter::usage) | used, remaining and overdraft of every rule |
//! | undo a charge | [`refund`](Limiter::refund) | each rule gives back what it still counts |
//! | record how an attempt ended | [`report`](Limiter::report) | penalties grow or are cleared |
//! | delete consumption | [`reset`](Limiter::reset) | the subject starts again |
//! | change the rules | [`replace_rules`](Limiter::replace_rules) | consumption stays |
//! | see why | [`explain`](Limiter::explain) | every rule, every number, every reason |
//!
//! ```
//! use tollgate::{LocalLimiter, Request};
//!
//! let limiter = LocalLimiter::from_yaml("
//!     version: 1
//!     rules: [{ id: daily, per: user, limit: { fixed-window: 10/d } }]
//! ")?;
//! let three = Request::from([("user", "u-7")]).cost(3);
//!
//! let spent = limiter.check(Request::from([("user", "u-7")]).cost(8))?;
//! let refused = limiter.check(&three)?;
//! assert_eq!((refused.rule(), refused.remaining()), (Some("daily"), Some(2)));
//! assert!(refused.retry_after().is_some(), "the next day helps");
//!
//! limiter.refund(&spent)?;
//! assert!(limiter.check(&three)?.allowed());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Stores
//!
//! A store applies a whole check in one atomic step. The memory store is exact within one process. The Redis store is
//! exact for any number of processes, in one round trip; it needs the feature `redis`. [`LimiterBuilder::store`] chooses
//! by URL, [`LimiterBuilder::custom_store`] takes any other [`Store`](store::Store). Stores see attribute values as
//! keyed hashes only; servers that share a store must share the [`HashKey`].
//!
//! If a store does not answer, each rule's `on_failure` answers instead. [`Decision::source`] and [`Decision::degraded`]
//! say so. The memory store does not fail.
//!
//! # HTTP
//!
//! `tower` puts a limiter in front of axum, tonic or any tower service (feature `tower`). [`headers`] writes the
//! rate limit header fields, [`problem`] the body of a refusal, and [`Decision::to_json`] the whole decision.
//!
//! # Features
//!
//! | feature | default | what it adds |
//! |---|---|---|
//! | `rules` | yes | the rules file, [`LocalLimiter`] and [`Limiter`] |
//! | `redis` | no | the Redis store, with TLS |
//! | `tower` | no | the tower layer |
//! | `ledger` | no | the ledger in SQLite or PostgreSQL |
//!
//! Without any feature there are [`Keyed`], [`Limit`] and the memory store.

pub mod clock;
pub mod keyed;
pub mod limit;
mod random;
pub mod store;

#[cfg(feature = "rules")]
#[doc(hidden)]
pub mod engine;
#[cfg(feature = "rules")]
#[doc(hidden)]
pub mod guard;
#[cfg(feature = "ledger")]
pub mod ledger;
#[cfg(feature = "rules")]
#[doc(hidden)]
pub mod limiter;
#[cfg(feature = "rules")]
mod request;
#[cfg(feature = "rules")]
#[doc(hidden)]
pub mod rules;
#[cfg(feature = "rules")]
#[doc(hidden)]
pub mod shorthand;
#[cfg(feature = "tower")]
pub mod tower;
#[cfg(feature = "rules")]
mod wire;

#[doc(no_inline)]
pub use clock::{Clock, FastClock, ManualClock, SystemClock};
#[doc(no_inline)]
pub use keyed::{Keyed, KeyedDecision, KeyedError};
#[doc(no_inline)]
pub use limit::Limit;
#[doc(hidden)]
pub use store::memory::MemoryStore;
#[doc(hidden)]
pub use tollgate_core as core;
pub use tollgate_core::{Algorithm, Exactness, LimitError, Time};

#[cfg(feature = "rules")]
pub use limiter::{
    AcquireError, Actual, BuildError, CheckError, Decision, Explanation, Extension, FollowUpError,
    InvalidReceipts, KeepAlive, Limiter, LimiterBuilder, LocalLimiter, LocalLimiterBuilder, LocalPermit,
    LocalReservation, Permit, Recorded, Reservation, Returned, RuleDecision, RuleExplanation, RuleExtension,
    RuleRecord, RuleUsage,
};
#[cfg(feature = "rules")]
pub use request::Request;
#[doc(hidden)]
#[cfg(feature = "rules")]
pub use tollgate_core::Attributes;
#[cfg(feature = "rules")]
pub use tollgate_core::decision::Source;
#[cfg(feature = "rules")]
pub use tollgate_core::{Decline, Receipt, Report, SubjectHasher as HashKey, SubjectHashers as HashKeys};
#[cfg(feature = "rules")]
pub use wire::{headers, problem};

/// Compiles and runs the programs of the guides.
#[cfg(all(doctest, feature = "redis", feature = "tower"))]
mod guides {
    #[doc = include_str!("../../../docs/guides/embed.md")]
    struct Embed;

    #[doc = include_str!("../../../docs/guides/reserve.md")]
    struct Reserve;

    #[doc = include_str!("../../../docs/guides/tower.md")]
    struct Tower;

    #[doc = include_str!("../../../README.md")]
    struct Readme;
}
