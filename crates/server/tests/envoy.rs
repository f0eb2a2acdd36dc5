//! Envoy's rate limit service: as a client of gRPC sees it, and as real Envoy does.

#[path = "envoy/gateway.rs"]
mod gateway;
#[path = "envoy/import.rs"]
mod import;
#[path = "envoy/proto.rs"]
mod proto;
#[path = "envoy/rls.rs"]
mod rls;
#[path = "common/serving.rs"]
#[allow(dead_code, reason = "every file of tests uses its own part")]
mod serving;
