//! The messages, as they are made from the definitions of Envoy.

#[allow(
    clippy::all,
    dead_code,
    missing_docs,
    rust_2018_idioms,
    unreachable_pub,
    reason = "it is made by `cargo xtask gen`, for every use"
)]
mod generated {
    include!(concat!(env!("CARGO_MANIFEST_DIR"), "/vendor/envoy/generated/mod.rs"));
}

pub(crate) use generated::envoy::config::core::v3::HeaderValue;
pub(crate) use generated::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
#[cfg(test)]
pub(crate) use generated::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
pub(crate) use generated::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;
pub(crate) use generated::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
pub(crate) use generated::envoy::service::ratelimit::v3::rate_limit_response::{
    Code, DescriptorStatus, RateLimit,
};
pub(crate) use generated::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
pub(crate) use generated::envoy::r#type::v3::RateLimitUnit;

/// The definitions themselves.
const DESCRIPTORS: &[u8] =
    include!(concat!(env!("CARGO_MANIFEST_DIR"), "/vendor/envoy/generated/descriptors.rs"));

/// Tells clients which services there are and what their messages look like.
pub(super) fn reflection() -> tonic_reflection::server::Builder<'static> {
    tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
}
