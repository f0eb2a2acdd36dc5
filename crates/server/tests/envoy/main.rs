//! Envoy's rate limit service, as a client of gRPC sees it. Real Envoy is with the other gateways.

mod corpus;
mod import;
mod misbehaviour;
mod proto;
mod rls;
