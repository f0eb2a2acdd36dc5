//! The messages, and a client for them.

#![allow(
    clippy::all,
    missing_docs,
    rust_2018_idioms,
    unreachable_pub,
    dead_code,
    reason = "it is made by `cargo xtask gen`, for every use"
)]

include!(concat!(env!("CARGO_MANIFEST_DIR"), "/vendor/envoy/generated/mod.rs"));

pub(crate) use envoy::config::core::v3::HeaderValue;
pub(crate) use envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
pub(crate) use envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::{Entry, RateLimitOverride};
pub(crate) use envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
pub(crate) use envoy::service::ratelimit::v3::rate_limit_response::{Code, DescriptorStatus, RateLimit};
pub(crate) use envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
pub(crate) use envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
pub(crate) use envoy::r#type::v3::RateLimitUnit;
