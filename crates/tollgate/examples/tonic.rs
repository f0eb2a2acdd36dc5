//! A gRPC service behind Tollgate: tonic's health service, with three calls per caller and one more each hour.
//!
//!     cargo run -p tollgate --features tower --example tonic
//!
//! It starts a server, calls it with a gRPC client over TCP, and prints what the client sees.
//!
//! gRPC refuses differently from HTTP: the status is a header, the body is empty, and the HTTP status stays 200. So the
//! layer gets a function that makes refusals. Matching, counting and header fields are the same.

use std::error::Error;
use std::net::Ipv4Addr;

use tokio::net::TcpListener;
use tollgate::LocalLimiter;
use tollgate::tower::{Rejection, TollgateLayer};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Code, Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

const RULES: &str = "
version: 1
rules:
  - id: checks-per-caller
    match: { path: /grpc.health.v1.Health/Check }     # /package.Service/Method
    per: caller
    missing: refuse
    limit: { token-bucket: 1/h, burst: 3 }
";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let layer = TollgateLayer::answering(LocalLimiter::from_yaml(RULES)?, |rejection| {
        let problem = rejection.problem();
        let code = match rejection {
            Rejection::Refused(_) if problem.status == 403 => Code::PermissionDenied,
            Rejection::Refused(_) if problem.status == 503 => Code::Unavailable,
            Rejection::Refused(_) => Code::ResourceExhausted,
            Rejection::Undecided(_) if problem.status == 413 => Code::InvalidArgument,
            Rejection::Undecided(_) => Code::Internal,
        };
        Status::new(code, problem.title).into_http::<tonic::body::Body>()
    })
    .describe(|request, about| {
        about.request(request);
        if let Some(caller) = request.headers.get("caller").and_then(|caller| caller.to_str().ok()) {
            about.set("caller", caller);
        }
    });

    let (_, health) = tonic_health::server::health_reporter();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    let server = Server::builder().layer(layer).add_service(health);
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));

    let channel = Endpoint::from_shared(format!("http://{address}"))?.connect().await?;
    let mut client = HealthClient::new(channel);
    for left in ["2", "1", "0"] {
        let answer = check(&mut client, Some("billing")).await?;
        let metadata = answer.metadata().get("ratelimit").expect("fields are metadata").to_str()?;
        println!("billing: ok, ratelimit: {metadata}");
        assert!(metadata.starts_with(&format!(r#""checks-per-caller";r={left};t="#)));
    }

    let refused = check(&mut client, Some("billing")).await.expect_err("the burst is three");
    println!("billing: {:?}, {}", refused.code(), refused.message());
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(refused.metadata().contains_key("retry-after"));

    let anonymous = check(&mut client, None).await.expect_err("a caller without a name is refused");
    println!("anonymous: {:?}, {}", anonymous.code(), anonymous.message());
    assert_eq!(anonymous.code(), Code::PermissionDenied);

    check(&mut client, Some("search")).await?;
    println!("search: ok");
    Ok(())
}

async fn check(
    client: &mut HealthClient<Channel>,
    caller: Option<&str>,
) -> Result<tonic::Response<tonic_health::pb::HealthCheckResponse>, Status> {
    // The empty name asks about the server as a whole.
    let mut request = Request::new(HealthCheckRequest { service: String::new() });
    if let Some(caller) = caller {
        let caller = caller.parse().map_err(|_| Status::invalid_argument("not a header value"))?;
        request.metadata_mut().insert("caller", caller);
    }
    client.check(request).await
}
