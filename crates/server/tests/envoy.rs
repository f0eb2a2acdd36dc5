//! Envoy's rate limit service, as a client of gRPC sees it. Real Envoy is with the other gateways.

#[path = "envoy/corpus.rs"]
mod corpus;
#[path = "envoy/import.rs"]
mod import;
#[path = "envoy/misbehaviour.rs"]
mod misbehaviour;
#[path = "envoy/proto.rs"]
mod proto;
#[path = "envoy/rls.rs"]
mod rls;
#[path = "common/serving.rs"]
#[allow(dead_code, reason = "every file of tests uses its own part")]
mod serving;
