//! A layer that puts a limiter in front of any [tower](https://docs.rs/tower) service that speaks HTTP: axum, tonic,
//! hyper or a client. Needs the feature `tower`.
//!
//! ```
//! use tollgate::LocalLimiter;
//! use tollgate::tower::TollgateLayer;
//!
//! let limiter = LocalLimiter::from_yaml("
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
//! For each request the layer
//!
//! 1. collects the attributes ([`TollgateLayer::describe`]) and the cost ([`TollgateLayer::cost`]) and checks them;
//! 2. answers itself if the request is refused or cannot be decided ([`Rejection`]): the inner service does not see it;
//! 3. waits for the slot if a leaky-bucket queue delayed the request. A request that is dropped meanwhile stays charged;
//! 4. calls the inner service. Leases of concurrency limits are held until its response is there, and released before
//!    the body of the response is sent;
//! 5. adds the header fields of [`crate::wire::headers`] to its own responses and those of the inner service.
//!
//! A request that is allowed although the store did not answer carries [`Degraded`] in its extensions.

mod description;
mod layer;
mod rejection;
mod service;

pub use description::Description;
pub use layer::TollgateLayer;
pub use rejection::Rejection;
pub use service::{Degraded, TollgateService};
pub use tollgate_core::{Cidr, ClientAddress, Prefixes, ProxyHeader, TrustedProxies, client_address};

#[cfg(test)]
mod tests;
