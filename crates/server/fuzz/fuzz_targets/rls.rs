#![no_main]

#[allow(dead_code, unused_imports, reason = "it is made for every use")]
mod proto {
    include!("../../vendor/envoy/generated/mod.rs");

    pub(crate) use envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
    pub(crate) use envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::{Entry, RateLimitOverride};
    pub(crate) use envoy::service::ratelimit::v3::RateLimitRequest;
}
#[path = "../rls.rs"]
mod rls;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rls::message(bytes));
