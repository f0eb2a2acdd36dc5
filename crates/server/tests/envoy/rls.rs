//! The calls of the service, made by a gRPC client.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use prost::Message;
use prost_types::FileDescriptorProto;
use tollgate_testkit::redis::{Certificates, Flavour, Server};
use tollgate_testkit::serving::{Serving, create_token};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code as Status, Request};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

use crate::proto::{
    Code, DescriptorStatus, Entry, HeaderValue, RateLimit, RateLimitDescriptor, RateLimitOverride,
    RateLimitRequest, RateLimitResponse, RateLimitServiceClient, RateLimitUnit, Unit,
};

const RULES: &str = "
version: 1
rules:
  - { id: per-user, match: { domain: d }, per: user, missing: skip, limit: { fixed-window: 10/365d } }
  - { id: per-tenant, match: { domain: d }, per: tenant, missing: skip, limit: { fixed-window: 4/30d } }
  - { id: by-address, match: { domain: a }, per: ip, missing: skip, limit: { token-bucket: 60/min } }
";

pub(crate) struct Service {
    pub(crate) server: Serving,
    _folder: tempfile::TempDir,
    runtime: tokio::runtime::Runtime,
    client: RateLimitServiceClient<Channel>,
    channel: Channel,
}

impl Service {
    pub(crate) fn start(args: &[&str]) -> Service {
        Service::with(RULES, args)
    }

    pub(crate) fn with(rules: &str, args: &[&str]) -> Service {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("rules.yaml");
        std::fs::write(&path, rules).expect("a file can be written");
        let path = path.to_str().expect("text");
        let args = [&["--grpc", "127.0.0.1:0", "--rules", path, "--threads", "1"], args].concat();
        let server = Serving::start(env!("CARGO_BIN_EXE_tollgate"), &args);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let channel = runtime.block_on(async { endpoint(&server).connect_lazy() });
        let client = RateLimitServiceClient::new(channel.clone());
        Service { server, _folder: folder, runtime, client, channel }
    }

    pub(crate) fn ask(&mut self, request: RateLimitRequest) -> Result<RateLimitResponse, tonic::Status> {
        self.call(Request::new(request))
    }

    /// Asks with metadata.
    pub(crate) fn call(
        &mut self,
        request: Request<RateLimitRequest>,
    ) -> Result<RateLimitResponse, tonic::Status> {
        let call = self.client.should_rate_limit(request);
        self.runtime.block_on(call).map(tonic::Response::into_inner)
    }

    /// The overall code, and the code and what remains of every descriptor.
    pub(crate) fn codes(&mut self, request: RateLimitRequest) -> (Code, Vec<(Code, u32)>) {
        let answer = self.ask(request).expect("an answer");
        let codes = answer.statuses.iter().map(|status| (status.code(), status.limit_remaining)).collect();
        (answer.overall_code(), codes)
    }
}

impl Service {
    /// Asks the reflection service.
    fn reflect(&self, asked: MessageRequest) -> Result<MessageResponse, Status> {
        let request = ServerReflectionRequest { host: String::new(), message_request: Some(asked) };
        let mut client = ServerReflectionClient::new(self.channel.clone());
        let answer = self.runtime.block_on(async {
            let answers = client.server_reflection_info(tokio_stream::once(request)).await?;
            answers.into_inner().message().await
        });
        let answer = answer.map_err(|error| error.code())?.expect("an answer");
        Ok(answer.message_response.expect("it is set"))
    }

    /// The definition of a service and of its messages: the file with the service, and the files that it imports, except
    /// those of protobuf itself.
    pub(crate) fn reflected_files(&self, service: &str) -> Vec<Vec<u8>> {
        let mut files: Vec<Vec<u8>> = Vec::new();
        let mut wanted = vec![MessageRequest::FileContainingSymbol(service.to_owned())];
        while let Some(asked) = wanted.pop() {
            let found = match self.reflect(asked).expect("reflection is on") {
                MessageResponse::FileDescriptorResponse(found) => found.file_descriptor_proto,
                other => panic!("{other:?}"),
            };
            for file in found.into_iter().filter(|file| !files.contains(file)).collect::<Vec<_>>() {
                let imports = FileDescriptorProto::decode(&*file).expect("a file descriptor").dependency;
                let ours = imports.into_iter().filter(|name| !name.starts_with("google/protobuf/"));
                wanted.extend(ours.map(MessageRequest::FileByFilename));
                files.push(file);
            }
        }
        files
    }
}

fn endpoint(server: &Serving) -> Endpoint {
    let at = server.grpc.expect("it speaks gRPC");
    Endpoint::from_shared(format!("http://{at}")).expect("an address").timeout(Duration::from_secs(30))
}

pub(crate) fn descriptor(entries: &[(&str, &str)]) -> RateLimitDescriptor {
    let entry = |(key, value): &(&str, &str)| Entry { key: (*key).to_owned(), value: (*value).to_owned() };
    RateLimitDescriptor { entries: entries.iter().map(entry).collect(), ..RateLimitDescriptor::default() }
}

pub(crate) fn request(domain: &str, descriptors: Vec<RateLimitDescriptor>) -> RateLimitRequest {
    RateLimitRequest { domain: domain.to_owned(), descriptors, hits_addend: 0 }
}

/// A request that charges nothing.
pub(crate) fn peek(entries: &[(&str, &str)]) -> RateLimitRequest {
    request("d", vec![RateLimitDescriptor { hits_addend: Some(0), ..descriptor(entries) }])
}

#[test]
fn a_bypassed_descriptor_has_the_largest_remaining() {
    let rules = format!("{RULES}bypass:\n  - {{ when: {{ user: root }}, reason: unlimited }}\n");
    let mut service = Service::with(&rules, &[]);
    let root = descriptor(&[("user", "root")]);
    assert_eq!(service.codes(request("d", vec![root.clone()])), (Code::Ok, vec![(Code::Ok, u32::MAX)]));
    // Beside a descriptor with a limit, and one that no rule matches.
    let both = vec![descriptor(&[("user", "u")]), root, descriptor(&[("other", "x")])];
    let answer = service.ask(request("d", both)).expect("an answer");
    let remaining: Vec<u32> = answer.statuses.iter().map(|status| status.limit_remaining).collect();
    assert_eq!(remaining, [9, u32::MAX, 0]);
    let limits: Vec<bool> = answer.statuses.iter().map(|status| status.current_limit.is_some()).collect();
    assert_eq!(limits, [true, false, false]);
}

#[test]
fn the_headers_list_the_rules_of_all_descriptors() {
    let mut service = Service::start(&[]);
    let both = vec![descriptor(&[("user", "u")]), descriptor(&[("tenant", "t")])];
    let answer = service.ask(request("d", both)).expect("an answer");
    let value = |name: &str| {
        let found = answer.response_headers_to_add.iter().find(|header| header.key == name);
        found.unwrap_or_else(|| panic!("{name}: {answer:?}")).value.clone()
    };
    assert_eq!(value("ratelimit-policy"), "\"per-user\";q=10;w=31536000, \"per-tenant\";q=4;w=2592000");
    let limits = value("ratelimit");
    let (tenant, user) = limits.split_once(", ").expect("two rules");
    assert!(tenant.starts_with("\"per-tenant\";r=3;t="), "{limits}");
    assert!(user.starts_with("\"per-user\";r=9;t="), "{limits}");
}

#[test]
fn a_response_has_a_status_headers_and_numbers() {
    let mut service = Service::start(&[]);
    let answer = service.ask(request("a", vec![descriptor(&[("remote_address", "192.0.2.7")])]));
    let header = |key: &str, value: &str| HeaderValue { key: key.to_owned(), value: value.to_owned() };
    let mut expected = RateLimitResponse {
        overall_code: Code::Ok.into(),
        statuses: vec![DescriptorStatus {
            code: Code::Ok.into(),
            current_limit: Some(RateLimit {
                name: "by-address".to_owned(),
                requests_per_unit: 60,
                unit: Unit::Minute.into(),
            }),
            limit_remaining: 59,
            duration_until_reset: Some(prost_types::Duration { seconds: 1, nanos: 0 }),
        }],
        response_headers_to_add: vec![
            header("ratelimit-policy", "\"by-address\";q=60;w=60"),
            header("ratelimit", "\"by-address\";r=59;t=1"),
        ],
        ..RateLimitResponse::default()
    };
    assert_eq!(answer.expect("an answer"), expected);
    // Another spelling of the address is the same client. Some units may come back meanwhile.
    let mut all = request("a", vec![descriptor(&[("remote_address", "::ffff:192.0.2.7")])]);
    all.hits_addend = 58;
    assert_eq!(service.ask(all.clone()).expect("an answer").overall_code(), Code::Ok);
    let refused = service.ask(all).expect("an answer");
    assert_eq!((refused.overall_code(), refused.statuses[0].code()), (Code::OverLimit, Code::OverLimit));
    let names: Vec<&str> = refused.response_headers_to_add.iter().map(|header| header.key.as_str()).collect();
    assert_eq!(names, ["ratelimit-policy", "ratelimit", "retry-after", "tollgate-ref"]);
    let reported = refused.dynamic_metadata.expect("a reason");
    let rule = reported.fields["rule"].kind.clone();
    assert_eq!(rule, Some(prost_types::value::Kind::StringValue("by-address".to_owned())));
    // Without a matching rule, the response has no numbers.
    expected = RateLimitResponse {
        overall_code: Code::Ok.into(),
        statuses: vec![DescriptorStatus { code: Code::Ok.into(), ..DescriptorStatus::default() }],
        ..RateLimitResponse::default()
    };
    let unknown = service.ask(request("elsewhere", vec![descriptor(&[("remote_address", "192.0.2.7")])]));
    assert_eq!(unknown.expect("an answer"), expected);
}

#[test]
fn descriptors_of_one_request_are_charged_all_or_none() {
    let mut service = Service::start(&[]);
    let both = |hits_addend| RateLimitRequest {
        hits_addend,
        ..request("d", vec![descriptor(&[("user", "u")]), descriptor(&[("tenant", "t")])])
    };
    assert_eq!(service.codes(both(0)), (Code::Ok, vec![(Code::Ok, 9), (Code::Ok, 3)]));
    assert_eq!(service.codes(both(3)), (Code::Ok, vec![(Code::Ok, 6), (Code::Ok, 0)]));
    assert_eq!(service.codes(both(1)), (Code::OverLimit, vec![(Code::Ok, 6), (Code::OverLimit, 0)]));
    assert_eq!(service.codes(peek(&[("user", "u")])), (Code::Ok, vec![(Code::Ok, 6)]));
    // The cost of a descriptor overrides the cost of the request.
    let mut own = both(1);
    own.descriptors[0].hits_addend = Some(4);
    own.descriptors[1] = descriptor(&[("tenant", "other")]);
    assert_eq!(service.codes(own), (Code::Ok, vec![(Code::Ok, 2), (Code::Ok, 3)]));
    // A cost above the capacity is refused with a reason.
    let answer = service.ask(both(11)).expect("an answer");
    assert_eq!(answer.overall_code(), Code::OverLimit);
    let why = answer.dynamic_metadata.expect("a reason").fields["reason"].kind.clone();
    let expected = "rule \"per-user\": cost 11 exceeds the capacity 10; it could never be admitted";
    assert_eq!(why, Some(prost_types::value::Kind::StringValue(expected.to_owned())));
}

#[test]
fn the_limit_of_a_descriptor_counts_independently_of_the_rules() {
    let mut service = Service::start(&[]);
    let limited = |requests_per_unit, unit: RateLimitUnit| RateLimitDescriptor {
        limit: Some(RateLimitOverride { requests_per_unit, unit: unit.into(), unit_multiplier: None }),
        ..descriptor(&[("user", "v")])
    };
    let year = || limited(2, RateLimitUnit::Year);
    let tenant = || descriptor(&[("tenant", "t")]);
    let answer = service.ask(request("d", vec![tenant(), year()])).expect("an answer");
    let limit = answer.statuses[1].current_limit.clone().expect("a limit");
    assert_eq!((limit.requests_per_unit, limit.unit()), (2, Unit::Year));
    assert_eq!((answer.statuses[0].limit_remaining, answer.statuses[1].limit_remaining), (3, 1));
    let again = (Code::Ok, vec![(Code::Ok, 2), (Code::Ok, 0)]);
    assert_eq!(service.codes(request("d", vec![tenant(), year()])), again);
    // The descriptor's own limit refuses, and no rule is charged. The rule per user was never charged.
    let refused = service.codes(request("d", vec![tenant(), year()]));
    assert_eq!((refused.0, refused.1[1]), (Code::OverLimit, (Code::OverLimit, 0)));
    assert_eq!(service.codes(peek(&[("tenant", "t")])), (Code::Ok, vec![(Code::Ok, 2)]));
    assert_eq!(service.codes(peek(&[("user", "v")])), (Code::Ok, vec![(Code::Ok, 10)]));
    // A rule refuses, and the descriptor's own limit is not charged.
    let much = |hits| RateLimitDescriptor { hits_addend: Some(hits), ..tenant() };
    let three = || limited(3, RateLimitUnit::Year);
    let refused = service.codes(request("d", vec![three(), much(3)]));
    assert_eq!(refused.0, Code::OverLimit);
    assert_eq!(service.codes(request("d", vec![three()])), (Code::Ok, vec![(Code::Ok, 0)]));
    // With a multiplier, the window is as long as that many units.
    let mut months = limited(7, RateLimitUnit::Month);
    months.limit = months.limit.map(|limit| RateLimitOverride { unit_multiplier: Some(12), ..limit });
    let answer = service.ask(request("months", vec![months])).expect("an answer");
    let reset = answer.statuses[0].duration_until_reset.expect("a reset").seconds;
    let into_window =
        std::time::SystemTime::UNIX_EPOCH.elapsed().expect("a clock").as_secs() % (360 * 86_400);
    assert!(reset.abs_diff(360 * 86_400 - i64::try_from(into_window).expect("it fits")) < 60, "{reset}");
    // A limit of 0 refuses everything.
    let none = service.codes(request("d", vec![limited(0, RateLimitUnit::Second)]));
    assert_eq!(none, (Code::OverLimit, vec![(Code::OverLimit, 0)]));
    // So does a limit without a unit: as an error, a gateway might let the request pass.
    let no_unit = service.codes(request("d", vec![limited(1, RateLimitUnit::Unknown)]));
    assert_eq!(no_unit, (Code::OverLimit, vec![(Code::OverLimit, 0)]));
}

#[test]
fn a_hundred_bad_requests_change_nothing() {
    let mut service = Service::start(&[]);
    let user = descriptor(&[("user", "u")]);
    let mut bad: Vec<(RateLimitRequest, &str)> = vec![
        (request("", vec![user.clone()]), "the domain is empty"),
        (request("d", vec![]), "the message has no descriptor"),
        (request("d", vec![user.clone(), descriptor(&[])]), "descriptor 1 has no entry"),
        (request("d", vec![user.clone(), descriptor(&[("", "u")])]), "an entry of descriptor 1 has no key"),
    ];
    for many in 33..60 {
        bad.push((request("d", vec![user.clone(); many]), "descriptors, more than 32"));
    }
    for many in 33..76 {
        let empty = vec![descriptor(&[]); many];
        bad.push((request("d", empty), "descriptors, more than 32"));
    }
    for unit in [0, -1, 7, 99, i32::MAX] {
        let limit = Some(RateLimitOverride { requests_per_unit: 1, unit, unit_multiplier: None });
        let limited = RateLimitDescriptor { limit, ..user.clone() };
        bad.push((request("d", vec![user.clone(), limited]), "has an unknown unit"));
    }
    for (unit, units) in
        [(RateLimitUnit::Second, 0), (RateLimitUnit::Year, 2), (RateLimitUnit::Year, u32::MAX)]
    {
        let limit =
            RateLimitOverride { requests_per_unit: 1, unit: unit.into(), unit_multiplier: Some(units) };
        let limited = RateLimitDescriptor { limit: Some(limit), ..user.clone() };
        bad.push((request("d", vec![user.clone(), limited]), "has a unit_multiplier of 0, or one that"));
    }
    // Refused, because a gateway may let requests pass when it gets an error.
    for (request, expected) in &bad {
        let answer = service.ask(request.clone()).expect("an answer");
        assert_eq!(answer.overall_code(), Code::OverLimit, "{expected}");
        let reason = answer.dynamic_metadata.and_then(|reported| reported.fields["reason"].kind.clone());
        let Some(prost_types::value::Kind::StringValue(reason)) = reason else { panic!("{reason:?}") };
        assert!(reason.contains(expected), "{reason}");
    }
    for kib in 64..90 {
        let large = descriptor(&[("user", "u"), ("filler", &"x".repeat(kib * 1024))]);
        let answer = service.ask(request("d", vec![large])).expect("an answer");
        assert_eq!(answer.overall_code(), Code::OverLimit);
        assert!(answer.dynamic_metadata.is_some_and(|reported| reported.fields.contains_key("reason")));
    }
    assert!(bad.len() + 26 > 100, "{}", bad.len());
    assert_eq!(service.codes(peek(&[("user", "u")])), (Code::Ok, vec![(Code::Ok, 10)]));
}

/// The message of a request whose values are bytes. Envoy copies what clients send.
#[derive(Clone, PartialEq, prost::Message)]
struct BytesRequest {
    #[prost(bytes = "vec", tag = "1")]
    domain: Vec<u8>,
    #[prost(message, repeated, tag = "2")]
    descriptors: Vec<BytesDescriptor>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct BytesDescriptor {
    #[prost(message, repeated, tag = "1")]
    entries: Vec<BytesEntry>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct BytesEntry {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

impl Service {
    /// Asks about one entry of any bytes.
    fn ask_about_bytes(&self, key: &[u8], value: &[u8]) -> Result<Code, tonic::Status> {
        let entries = vec![BytesEntry { key: key.to_vec(), value: value.to_vec() }];
        let request = BytesRequest { domain: b"d".to_vec(), descriptors: vec![BytesDescriptor { entries }] };
        let mut client = tonic::client::Grpc::new(self.channel.clone());
        let path = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
        let path = http::uri::PathAndQuery::from_static(path);
        let codec = tonic_prost::ProstCodec::<BytesRequest, RateLimitResponse>::default();
        let answer = self.runtime.block_on(async {
            client.ready().await.expect("the server is there");
            client.unary(Request::new(request), path, codec).await
        })?;
        Ok(answer.into_inner().overall_code())
    }
}

#[test]
fn three_hundred_requests_with_a_descriptor_that_is_not_utf_8_are_counted() {
    let service = Service::start(&[]);
    let codes: Vec<Code> =
        (0..300).map(|_| service.ask_about_bytes(b"user", b"\xff").expect("not an error")).collect();
    let admitted = codes.iter().filter(|code| **code == Code::Ok).count();
    assert_eq!(admitted, 10, "the limit of the rule");
    // Other bytes are another subject, and so is the character that replaces them elsewhere.
    for other in [&b"\xfe"[..], b"\xff\xff", "\u{FFFD}".as_bytes(), "\u{10FFFF}".as_bytes(), b"%FF"] {
        assert_eq!(service.ask_about_bytes(b"user", other).expect("not an error"), Code::Ok, "{other:?}");
    }
    // Bytes in a key are an attribute that no rule uses.
    assert_eq!(service.ask_about_bytes(b"\xff", b"u").expect("not an error"), Code::Ok);
}

#[test]
fn invalid_messages_and_other_protocols_are_refused() {
    let service = Service::start(&[]);
    let at = service.server.grpc.expect("it speaks gRPC");
    let curl = |args: &[&str]| {
        let url = format!("http://{at}/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit");
        let mut command = Command::new("curl");
        command
            .args(["--silent", "--max-time", "20", "--include", "--http2-prior-knowledge", &url])
            .args(args);
        String::from_utf8_lossy(&command.output().expect("curl runs").stdout).into_owned()
    };
    let grpc = ["--header", "content-type: application/grpc", "--data-binary"];
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("bytes");
    std::fs::write(&file, [0, 0, 0, 0, 3, 0xff, 0xff, 0xff]).expect("a file can be written");
    let answer = curl(&[&grpc[..], &[&format!("@{}", file.display())]].concat());
    assert!(answer.starts_with("HTTP/2 200") && answer.contains("grpc-status: 3"), "{answer}");
    let answer = curl(&["--header", "content-type: application/json"]);
    assert!(answer.starts_with("HTTP/2 415"), "{answer}");
    // The first frame of the server contains the limit on streams. An HTTP/1.1 client gets no response.
    let settings = first_bytes(at, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0");
    let streams: Vec<u32> = settings[9..]
        .chunks(6)
        .filter(|setting| setting[..2] == [0, 3])
        .map(|setting| u32::from_be_bytes([setting[2], setting[3], setting[4], setting[5]]))
        .collect();
    assert_eq!(streams, [200]);
    assert_eq!(first_bytes(at, b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"), b"");
}

/// The first frame that a server sends after these bytes; empty if it closes the connection.
fn first_bytes(at: SocketAddr, sent: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(at).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    stream.write_all(sent).expect("it reads");
    let mut head = [0; 9];
    if stream.read_exact(&mut head).is_err() {
        return Vec::new();
    }
    let len = usize::from(head[1]) << 8 | usize::from(head[2]);
    let mut frame = vec![0; len];
    stream.read_exact(&mut frame).expect("a whole frame");
    [&head[..], &frame].concat()
}

#[test]
fn callers_without_the_scope_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let tokens = ["check", "read"].map(|scope| create_token(env!("CARGO_BIN_EXE_tollgate"), scope));
    let path = folder.path().join("tollgate.yaml");
    std::fs::write(&path, format!("tokens:\n{}\n{}\n", tokens[0].line, tokens[1].line))
        .expect("a file can be written");
    let mut service = Service::start(&["--config", path.to_str().expect("text")]);
    let mut ask = |credentials: Option<&str>| {
        let mut request = Request::new(request("d", vec![descriptor(&[("user", "u")])]));
        if let Some(credentials) = credentials {
            request.metadata_mut().insert("authorization", credentials.parse().expect("a value"));
        }
        service
            .runtime
            .block_on(service.client.should_rate_limit(request))
            .map(drop)
            .map_err(|error| error.code())
    };
    assert_eq!(ask(None), Err(Status::Unauthenticated));
    assert_eq!(ask(Some("Bearer tg_unknown")), Err(Status::Unauthenticated));
    assert_eq!(ask(Some(&format!("Bearer {}", tokens[1].token))), Err(Status::PermissionDenied));
    assert_eq!(ask(Some(&format!("Bearer {}", tokens[0].token))), Ok(()));
    // Health checks need no token.
    let check =
        async { HealthClient::new(service.channel.clone()).check(HealthCheckRequest::default()).await };
    assert!(service.runtime.block_on(check).is_ok());
}

#[test]
fn with_certificates_http2_runs_over_tls() {
    let folder = tempfile::tempdir().expect("a folder");
    let certificates = Certificates::generate(folder.path()).expect("certificates");
    let path = |path: &Path| path.to_str().expect("text").to_owned();
    let (certificate, key) = (path(certificates.server()), path(certificates.key()));
    let service = Service::start(&["--tls-certificate", &certificate, "--tls-key", &key]);
    let at = service.server.grpc.expect("it speaks gRPC");
    let message = request("d", vec![descriptor(&[("user", "u")])]).encode_to_vec();
    let file = folder.path().join("message");
    let head = [0, 0, 0, 0, u8::try_from(message.len()).expect("it is short")];
    std::fs::write(&file, [&head[..], &message].concat()).expect("a file can be written");
    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--max-time", "20", "--http2", "--cacert"])
        .arg(certificates.authority())
        .args(["--header", "content-type: application/grpc", "--data-binary"])
        .arg(format!("@{}", file.display()))
        .arg(format!("https://{at}/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"))
        .output()
        .expect("curl runs");
    let answer = RateLimitResponse::decode(output.stdout.get(5..).unwrap_or_else(|| panic!("{output:?}")));
    assert_eq!(answer.expect("a message").statuses[0].limit_remaining, 9);
}

#[test]
fn health_is_reported_until_shutdown_and_watchers_do_not_delay_it() {
    let mut service = Service::start(&[]);
    let mut health = HealthClient::new(service.channel.clone());
    let named = |service: &str| HealthCheckRequest { service: service.to_owned() };
    let mut watched = service.runtime.block_on(async {
        for known in ["", "envoy.service.ratelimit.v3.RateLimitService"] {
            let status = health.check(named(known)).await.expect("an answer").into_inner().status();
            assert_eq!(status, ServingStatus::Serving);
        }
        assert_eq!(health.check(named("other")).await.expect_err("unknown").code(), Status::NotFound);
        // Anonymous callers may send this, so it is kept small.
        let long = health.check(named(&"x".repeat(2_000))).await.expect_err("too long");
        assert_eq!(long.code(), Status::OutOfRange);
        let mut watched = health.watch(named("")).await.expect("an answer").into_inner();
        assert_eq!(
            watched.message().await.expect("a status").expect("a status").status(),
            ServingStatus::Serving
        );
        watched
    });
    let began = Instant::now();
    service.server.signal("TERM");
    service.runtime.block_on(async {
        let last = watched.message().await.expect("a status").map(|reported| reported.status());
        assert!(matches!(last, None | Some(ServingStatus::NotServing)), "{last:?}");
        assert!(watched.message().await.expect("the end").is_none());
    });
    drop((watched, health));
    assert_eq!(service.server.wait_for("ended")["all_answered"], true);
    assert_eq!(service.server.exit_code(), Some(0));
    assert!(
        began.elapsed() < Duration::from_secs(9),
        "{:?}: the watcher delayed the shutdown",
        began.elapsed()
    );
}

#[test]
fn services_are_listed_only_with_reflection() {
    let listed = |args: &[&str]| -> Result<Vec<String>, Status> {
        match Service::start(args).reflect(MessageRequest::ListServices(String::new()))? {
            MessageResponse::ListServicesResponse(list) => {
                Ok(list.service.into_iter().map(|service| service.name).collect())
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(listed(&[]), Err(Status::Unimplemented));
    let services = listed(&["--grpc-reflection"]).expect("a list");
    assert!(
        services.iter().any(|name| name == "envoy.service.ratelimit.v3.RateLimitService"),
        "{services:?}"
    );
}

#[test]
fn without_a_store_each_rule_applies_its_failure_policy() {
    let redis = Server::start(Flavour::Redis70).expect("a server starts");
    let folder = tempfile::tempdir().expect("a folder");
    let key = folder.path().join("key");
    std::fs::write(&key, "5e".repeat(32)).expect("a file can be written");
    let rules = "
version: 1
rules:
  - { id: closed, match: { descriptor: user }, per: user, limit: { fixed-window: 10/365d } }
  - { id: open, match: { descriptor: tenant }, per: tenant, limit: { fixed-window: 4/365d }, on_failure: open }
  - { id: degraded, match: { descriptor: plan }, per: plan, limit: { fixed-window: 4/365d }, on_failure: degraded }
";
    let mut service = Service::with(
        rules,
        &["--store", &redis.url(), "--hash-key-file", key.to_str().expect("text"), "--store-deadline", "5s"],
    );
    let of = |kinds: &[&str]| request("d", kinds.iter().map(|kind| descriptor(&[(kind, "x")])).collect());
    let both = of(&["user", "tenant"]);
    assert_eq!(service.codes(both.clone()), (Code::Ok, vec![(Code::Ok, 9), (Code::Ok, 3)]));
    drop(redis);
    assert_eq!(service.codes(both), (Code::OverLimit, vec![(Code::OverLimit, 0), (Code::Ok, 0)]));
    assert_eq!(service.codes(of(&["tenant"])), (Code::Ok, vec![(Code::Ok, 0)]));
    let degraded = service.ask(of(&["plan"])).expect("an answer");
    assert_eq!(degraded.overall_code(), Code::Ok);
    assert!(degraded.dynamic_metadata.is_some_and(|reported| reported.fields.contains_key("degraded")));
}
