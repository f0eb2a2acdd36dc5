//! Envoy's rate limit service, called by gRPC clients. `tests/gateways` runs real Envoy.

mod after_the_fact;
mod corpus;
mod definitions;
mod import;
mod misbehaviour;
mod proto;
mod rls;
