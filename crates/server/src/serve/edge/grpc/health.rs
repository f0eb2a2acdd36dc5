//! `grpc.health.v1.Health`: reports `SERVING` until the server shuts down.

use hyper::body::Incoming;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::{HealthReporter, HealthService};

use super::{infallible, should_rate_limit};

/// Bytes of a request, which names a service. Anonymous callers may send it, so it is kept small.
const REQUEST_BYTES_MAX: usize = 1024;

/// The health service of one connection.
pub(super) struct Health {
    reporter: HealthReporter,
    server: HealthServer<HealthService>,
}

impl Health {
    pub(super) async fn new() -> Health {
        let reporter = HealthReporter::new();
        reporter.set_service_status(should_rate_limit::SERVICE, ServingStatus::Serving).await;
        let server = HealthServer::new(HealthService::from_health_reporter(reporter.clone()))
            .max_decoding_message_size(REQUEST_BYTES_MAX);
        Health { reporter, server }
    }

    pub(super) async fn respond(&self, request: http::Request<Incoming>) -> http::Response<Body> {
        infallible(self.server.clone().call(request).await)
    }

    /// Reports `NOT_SERVING` to clients that watch, and ends their streams.
    pub(super) async fn end(&self) {
        for service in ["", should_rate_limit::SERVICE] {
            self.reporter.set_service_status(service, ServingStatus::NotServing).await;
            self.reporter.clone().clear_service_status(service).await;
        }
    }
}
