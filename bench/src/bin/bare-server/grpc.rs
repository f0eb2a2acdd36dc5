//! gRPC by tonic alone: reads a message, and gives everybody the same answer.

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

/// What Envoy asks, as far as the bench says it.
#[derive(Clone, PartialEq, prost::Message)]
struct Question {
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

/// That it may pass.
#[derive(Clone, PartialEq, prost::Message)]
struct Answer {
    #[prost(int32, tag = "1")]
    overall_code: i32,
}

#[derive(Clone)]
struct Everything;

impl UnaryService<Question> for Everything {
    type Response = Answer;
    type Future = Ready<Result<Response<Answer>, Status>>;

    fn call(&mut self, _question: Request<Question>) -> Self::Future {
        ready(Ok(Response::new(Answer { overall_code: 1 })))
    }
}

impl NamedService for Everything {
    const NAME: &'static str = "envoy.service.ratelimit.v3.RateLimitService";
}

impl Service<http::Request<Body>> for Everything {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async {
            Ok(Grpc::new(ProstCodec::<Answer, Question>::default()).unary(Everything, request).await)
        })
    }
}

pub(crate) async fn serve(socket: TcpListener) -> Result<()> {
    let socket = tokio::net::TcpListener::from_std(socket)?;
    let server = Server::builder().tcp_nodelay(true).add_service(Everything);
    Ok(server.serve_with_incoming(TcpListenerStream::new(socket)).await?)
}
