//! A layer that puts a [`Limiter`] in front of any [tower](https://docs.rs/tower) service that speaks HTTP: axum,
//! tonic, hyper, a client of your own.
//!
//! ```
//! use tollgate::Limiter;
//! use tollgate::tower::TollgateLayer;
//!
//! let limiter = Limiter::from_yaml("
//!     version: 1
//!     rules:
//!       - { id: api-per-key, per: api_key | ip, limit: { token-bucket: 10/s, burst: 50 } }
//! ")?;
//! let layer = TollgateLayer::new(limiter).describe(|request, about| {
//!     about.request(request);
//!     if let Some(key) = request.headers.get("x-api-key").and_then(|key| key.to_str().ok()) {
//!         about.set("api_key", key);
//!     }
//! });
//! let app: axum::Router = axum::Router::new().layer(layer);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What happens to a request:
//!
//! 1. It is described ([`TollgateLayer::describe`]), priced ([`TollgateLayer::cost`]) and checked.
//! 2. If it is refused, or nobody can decide, the inner service never sees it, and it is answered by the layer
//!    ([`Rejection`]).
//! 3. If a shaper gave it a later slot, it waits for it. A request that is dropped while it waits has been charged.
//! 4. The inner service answers. Places under concurrency rules are held until its response is there; while the
//!    response's body is sent they are free again.
//! 5. The header fields of [`crate::headers`] are added, on both kinds of answers.
//!
//! A request that passes although the store could not decide carries [`Degraded`] in its extensions.

mod description;
mod layer;
mod rejection;
mod service;

pub use description::Description;
pub use layer::TollgateLayer;
pub use rejection::Rejection;
pub use service::{Degraded, TollgateService};

#[cfg(doc)]
use crate::Limiter;

#[cfg(test)]
mod tests;
