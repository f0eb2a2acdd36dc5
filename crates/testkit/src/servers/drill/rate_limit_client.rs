//! A client of Envoy's rate limit service, for drills over gRPC.

use std::net::SocketAddr;

use prost_types::value::Kind;
use tokio::task::JoinSet;
use tonic::client::Grpc;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

use super::DrillError;

const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const OK: i32 = 1;

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

#[derive(Clone, PartialEq, prost::Message)]
struct RateLimitResponse {
    #[prost(int32, tag = "1")]
    overall_code: i32,
    #[prost(message, optional, tag = "6")]
    dynamic_metadata: Option<prost_types::Struct>,
}

/// What a response says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct RateLimitAnswer {
    pub(super) allowed: bool,
    /// Whether a failure policy answered.
    pub(super) by_policy: bool,
    /// Why a request was refused that no rule decided.
    pub(super) reason: Option<String>,
}

/// One HTTP/2 connection, and its calls in flight.
pub(super) struct RateLimitClient {
    channel: Channel,
    authorization: MetadataValue<Ascii>,
    calls: JoinSet<Result<RateLimitAnswer, DrillError>>,
}

impl RateLimitClient {
    pub(super) async fn connect(address: SocketAddr, token: &str) -> Result<RateLimitClient, DrillError> {
        let channel = Endpoint::from_shared(format!("http://{address}"))?.connect().await?;
        let authorization = format!("Bearer {token}").parse()?;
        Ok(RateLimitClient { channel, authorization, calls: JoinSet::new() })
    }

    /// Sends a call with one descriptor.
    pub(super) fn send(&mut self, entries: &[(&str, &str)]) {
        let entry = |&(key, value): &(&str, &str)| Entry { key: key.to_owned(), value: value.to_owned() };
        let descriptor = Descriptor { entries: entries.iter().map(entry).collect() };
        let message = RateLimitRequest { domain: "drill".to_owned(), descriptors: vec![descriptor] };
        let mut request = tonic::Request::new(message);
        request.metadata_mut().insert("authorization", self.authorization.clone());
        self.calls.spawn(call(self.channel.clone(), request));
    }

    /// Waits for the answer to any of the calls.
    pub(super) async fn answer(&mut self) -> Result<RateLimitAnswer, DrillError> {
        self.calls.join_next().await.ok_or("no call is in flight")??
    }
}

async fn call(
    channel: Channel,
    request: tonic::Request<RateLimitRequest>,
) -> Result<RateLimitAnswer, DrillError> {
    let mut client = Grpc::new(channel);
    client.ready().await?;
    let codec = ProstCodec::<RateLimitRequest, RateLimitResponse>::default();
    let response = client.unary(request, PATH.parse()?, codec).await?.into_inner();
    let fields = response.dynamic_metadata.map(|metadata| metadata.fields).unwrap_or_default();
    let field = |name: &str| fields.get(name).and_then(|value| value.kind.clone());
    let reason = match field("reason") {
        Some(Kind::StringValue(reason)) => Some(reason),
        _ => None,
    };
    let by_policy = field("fallback") == Some(Kind::BoolValue(true));
    Ok(RateLimitAnswer { allowed: response.overall_code == OK, by_policy, reason })
}
