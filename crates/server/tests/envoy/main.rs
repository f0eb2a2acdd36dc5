//! Envoy's rate limit service, called by gRPC clients. `tests/gateways` runs real Envoy.

mod corpus;
mod import;
mod misbehaviour;
mod proto;
mod rls;
