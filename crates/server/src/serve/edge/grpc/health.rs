//! `grpc.health.v1.Health`: whether the server serves. It does until it is about to end.

use hyper::body::Incoming;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::{HealthReporter, HealthService};

use super::{infallible, should_rate_limit};

/// Bytes of a question: the name of a service. Anybody may ask, so nobody is given room for more.
const QUESTION_MAX: usize = 1024;

/// What one connection is told.
pub(super) struct Health {
    reporter: HealthReporter,
    server: HealthServer<HealthService>,
}

impl Health {
    pub(super) async fn new() -> Health {
        let reporter = HealthReporter::new();
        reporter.set_service_status(should_rate_limit::SERVICE, ServingStatus::Serving).await;
        let server = HealthServer::new(HealthService::from_health_reporter(reporter.clone()))
            .max_decoding_message_size(QUESTION_MAX);
        Health { reporter, server }
    }

    pub(super) async fn answer(&self, request: http::Request<Incoming>) -> http::Response<Body> {
        infallible(self.server.clone().call(request).await)
    }

    /// Tells everybody who watches, and that there is nothing more to tell.
    pub(super) async fn end(&self) {
        for service in ["", should_rate_limit::SERVICE] {
            self.reporter.set_service_status(service, ServingStatus::NotServing).await;
            self.reporter.clone().clear_service_status(service).await;
        }
    }
}
