//! gRPC by tonic alone: reads a message and sends a fixed response.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::net::TcpListener;
use std::pin::Pin;
use std::task::{Context, Poll};

use anyhow::Result;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::transport::Server;
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

/// Envoy's request, with the fields that the bench sends.
#[derive(Clone, PartialEq, prost::Message)]
struct RateLimitRequest {
    #[prost(string, tag = "1")]
    domain: String,
    #[prost(message, repeated, tag = "2")]
    descriptors: Vec<Descriptor>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Descriptor {
    #[prost(message, repeated, tag = "1")]
    entries: Vec<Entry>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Entry {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(string, tag = "2")]
    value: String,
}

/// The response: code OK.
#[derive(Clone, PartialEq, prost::Message)]
struct RateLimitResponse {
    #[prost(int32, tag = "1")]
    overall_code: i32,
}

#[derive(Clone)]
struct AlwaysAdmit;

impl UnaryService<RateLimitRequest> for AlwaysAdmit {
    type Response = RateLimitResponse;
    type Future = Ready<Result<Response<RateLimitResponse>, Status>>;

    fn call(&mut self, _request: Request<RateLimitRequest>) -> Self::Future {
        ready(Ok(Response::new(RateLimitResponse { overall_code: 1 })))
    }
}

impl NamedService for AlwaysAdmit {
    const NAME: &'static str = "envoy.service.ratelimit.v3.RateLimitService";
}

impl Service<http::Request<Body>> for AlwaysAdmit {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async {
            Ok(Grpc::new(ProstCodec::<RateLimitResponse, RateLimitRequest>::default())
                .unary(AlwaysAdmit, request)
                .await)
        })
    }
}

pub(crate) async fn serve(socket: TcpListener) -> Result<()> {
    let socket = tokio::net::TcpListener::from_std(socket)?;
    let server = Server::builder().tcp_nodelay(true).add_service(AlwaysAdmit);
    Ok(server.serve_with_incoming(TcpListenerStream::new(socket)).await?)
}
