//! A refusal carries its reference over every transport, and each is opened by the same server.

use std::io::{Read, Write};

use super::*;

const RULES: &str = "version: 1\nrules:\n  - { id: once, per: user, limit: { fixed-window: 1/d } }\n";

fn explained(server: &Serving, reference: &str) -> Value {
    let body = json!({ "ref": reference }).to_string();
    let head = format!(
        "POST /v1/explain HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = connect(server.http);
    stream.write_all(head.as_bytes()).expect("the server reads");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("a response");
    let (_, body) = response.split_once("\r\n\r\n").expect("a head and a body");
    serde_json::from_str::<Value>(body).expect("JSON")["refusal"].clone()
}

/// The words of the reply to `TG.CHECK`, as far as they are strings.
fn over_resp(server: &Serving, user: &str) -> Vec<String> {
    let mut stream = connect(server.resp);
    stream.write_all(&command(&["TG.CHECK", "user", user])).expect("the server reads");
    stream.write_all(&command(&["QUIT"])).expect("the server reads");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).expect("a reply");
    reply.lines().map(str::to_owned).collect()
}

/// The header fields that the gateway adds to the response for the client.
fn over_grpc(server: &Serving, user: &str) -> Vec<(String, String)> {
    let entries = vec![Entry { key: "user".to_owned(), value: user.to_owned() }];
    let descriptor =
        RateLimitDescriptor { entries, limit: None, hits_addend: Some(1), is_negative_hits: false };
    let message = RateLimitRequest { domain: "d".to_owned(), descriptors: vec![descriptor], hits_addend: 0 };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let answer = runtime.block_on(async {
        let address = format!("http://{}", server.grpc.expect("gRPC is on"));
        let channel = Endpoint::from_shared(address).expect("an address").timeout(TIMEOUT).connect_lazy();
        RateLimitServiceClient::new(channel).should_rate_limit(tonic::Request::new(message)).await
    });
    let fields = answer.expect("an answer").into_inner().response_headers_to_add;
    fields.into_iter().map(|field| (field.key, field.value)).collect()
}

#[test]
fn every_transport_gives_a_reference_with_a_refusal() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("rules.yaml");
    std::fs::write(&path, RULES).expect("a file");
    let server = start(&["--rules", path.to_str().expect("text")]);

    let user = |name: &str| one("user", name);
    assert_eq!(http(&server, &user("a"), None).1.get("ref"), None, "an admission");
    let refusal = http(&server, &user("a"), None).1;
    assert_eq!(explained(&server, refusal["ref"].as_str().expect("a reference"))["rule"], "once");

    let admitted = over_resp(&server, "b");
    assert!(!admitted.iter().any(|word| word == "ref"), "{admitted:?}");
    let refused = over_resp(&server, "b");
    assert_eq!(refused[0], "*22", "{refused:?}");
    let reference = refused.iter().find(|word| word.starts_with("tgr_")).expect("a reference");
    assert_eq!(explained(&server, reference)["rule"], "once");

    let of = |fields: &[(String, String)]| {
        fields.iter().find(|(name, _)| name == "tollgate-ref").map(|(_, value)| value.clone())
    };
    assert_eq!(of(&over_grpc(&server, "c")), None, "an admission");
    let reference = of(&over_grpc(&server, "c")).expect("a reference");
    let explained = explained(&server, &reference);
    assert_eq!((&explained["rule"], &explained["limit"]), (&json!("once"), &json!(1)));
}
