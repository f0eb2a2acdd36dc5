//! Our definitions of Envoy's messages, compared with the stubs that are generated from Envoy's definitions (the Python
//! package xds-protos) and with the definitions inside Envoy's program.

use std::io::Write;
use std::process::Stdio;

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::{Just, Strategy, any, prop_oneof};
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use prost::Message;
use prost_types::value::Kind;
use prost_types::{Duration, ListValue, Struct, Value as AnyValue};
use serde_json::{Value, json};
use tollgate_testkit::tools::Tool;

use crate::proto::{
    DescriptorStatus, Entry, HeaderValue, RateLimit, RateLimitDescriptor, RateLimitOverride,
    RateLimitRequest, RateLimitResponse,
};
use crate::rls::Service;

/// Messages of each kind that are compared.
const MESSAGES: usize = 500;
/// Fields that Envoy 1.40 sends and the stubs do not know yet.
const NEWER_THAN_THE_STUBS: [&str; 2] = [
    "envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.RateLimitOverride.unit_multiplier",
    "envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.is_negative_hits",
];

/// Runs the script with these arguments and lines. Returns the lines that it prints.
fn run(args: &[&str], lines: &[Value]) -> Vec<Value> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/envoy/stubs.py");
    let mut python = Tool::XdsProtos.command();
    python.arg(script).args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut python = python.spawn().expect("Python runs");
    let mut stdin = python.stdin.take().expect("it is piped");
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let writer = std::thread::spawn(move || stdin.write_all(text.as_bytes()));
    let output = python.wait_with_output().expect("it ends");
    writer.join().expect("no panic").expect("it reads everything");
    assert!(output.status.success(), "{:?}", output.status);
    let text = String::from_utf8(output.stdout).expect("text");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &Value) -> Vec<u8> {
    let text = text.as_str().expect("text");
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex")).collect()
}

/// The same messages in every run.
fn draw<T>(strategy: impl Strategy<Value = T>) -> Vec<T> {
    let mut runner = TestRunner::deterministic();
    let mut next = || strategy.new_tree(&mut runner).expect("a value").current();
    (0..MESSAGES).map(|_| next()).collect()
}

fn text() -> impl Strategy<Value = String> {
    proptest::string::string_regex("[a-c:_/ é€😀]{0,8}").expect("a pattern")
}

fn requests() -> impl Strategy<Value = RateLimitRequest> {
    let entry = (text(), text()).prop_map(|(key, value)| Entry { key, value });
    let limit = (any::<u32>(), 0..7, option::of(any::<u32>())).prop_map(
        |(requests_per_unit, unit, unit_multiplier)| RateLimitOverride {
            requests_per_unit,
            unit,
            unit_multiplier,
        },
    );
    let hits = option::of(prop_oneof![Just(0), any::<u64>()]);
    let descriptor = (vec(entry, 0..4), option::of(limit), hits, any::<bool>()).prop_map(
        |(entries, limit, hits_addend, is_negative_hits)| RateLimitDescriptor {
            entries,
            limit,
            hits_addend,
            is_negative_hits,
        },
    );
    (text(), vec(descriptor, 0..4), prop_oneof![Just(0), any::<u32>()])
        .prop_map(|(domain, descriptors, hits_addend)| RateLimitRequest { domain, descriptors, hits_addend })
}

fn responses() -> impl Strategy<Value = RateLimitResponse> {
    let limit = (text(), any::<u32>(), 0..8).prop_map(|(name, requests_per_unit, unit)| RateLimit {
        name,
        requests_per_unit,
        unit,
    });
    let duration =
        (0..=315_576_000_000_i64, 0..1_000_000_000).prop_map(|(seconds, nanos)| Duration { seconds, nanos });
    let status = (0..3, option::of(limit), any::<u32>(), option::of(duration)).prop_map(
        |(code, current_limit, limit_remaining, duration_until_reset)| DescriptorStatus {
            code,
            current_limit,
            limit_remaining,
            duration_until_reset,
        },
    );
    let header = (text(), text()).prop_map(|(key, value)| HeaderValue { key, value });
    let leaf = prop_oneof![
        text().prop_map(Kind::StringValue),
        any::<bool>().prop_map(Kind::BoolValue),
        (-1e15..1e15).prop_map(Kind::NumberValue),
        Just(Kind::NullValue(0)),
    ];
    let list = vec(leaf.clone(), 0..3).prop_map(|kinds| {
        let values = kinds.into_iter().map(|kind| AnyValue { kind: Some(kind) }).collect();
        Kind::ListValue(ListValue { values })
    });
    let metadata = btree_map(text(), prop_oneof![leaf, list], 0..4).prop_map(|fields| Struct {
        fields: fields.into_iter().map(|(name, kind)| (name, AnyValue { kind: Some(kind) })).collect(),
    });
    (0..3, vec(status, 0..4), vec(header, 0..4), option::of(metadata)).prop_map(
        |(overall_code, statuses, response_headers_to_add, dynamic_metadata)| RateLimitResponse {
            overall_code,
            statuses,
            response_headers_to_add,
            dynamic_metadata,
        },
    )
}

/// The fields by their names, without those that the stubs do not know.
fn request_fields(request: &RateLimitRequest) -> Value {
    let entry = |entry: &Entry| json!({ "key": entry.key, "value": entry.value });
    let limit = |limit: RateLimitOverride| json!({ "requests_per_unit": limit.requests_per_unit, "unit": limit.unit });
    let descriptor = |descriptor: &RateLimitDescriptor| {
        json!({
            "entries": descriptor.entries.iter().map(entry).collect::<Vec<_>>(),
            "limit": descriptor.limit.map(limit),
            "hits_addend": descriptor.hits_addend,
        })
    };
    json!({
        "domain": request.domain,
        "descriptors": request.descriptors.iter().map(descriptor).collect::<Vec<_>>(),
        "hits_addend": request.hits_addend,
    })
}

fn response_fields(response: &RateLimitResponse) -> Value {
    let limit = |limit: &RateLimit| json!({ "name": limit.name, "requests_per_unit": limit.requests_per_unit, "unit": limit.unit });
    let duration = |duration: &Duration| format!("{}.{:09}s", duration.seconds, duration.nanos);
    let status = |status: &DescriptorStatus| {
        json!({
            "code": status.code,
            "current_limit": status.current_limit.as_ref().map(limit),
            "limit_remaining": status.limit_remaining,
            "duration_until_reset": status.duration_until_reset.as_ref().map(duration),
        })
    };
    let header = |header: &HeaderValue| json!({ "key": header.key, "value": header.value });
    json!({
        "overall_code": response.overall_code,
        "statuses": response.statuses.iter().map(status).collect::<Vec<_>>(),
        "response_headers_to_add": response.response_headers_to_add.iter().map(header).collect::<Vec<_>>(),
        "dynamic_metadata": response.dynamic_metadata.as_ref().map(|metadata| {
            metadata.fields.iter().map(|(name, value)| (name.clone(), any_value(value))).collect::<serde_json::Map<_, _>>()
        }),
    })
}

fn any_value(value: &AnyValue) -> Value {
    match value.kind.as_ref().expect("it is set") {
        Kind::NullValue(_) => Value::Null,
        Kind::NumberValue(number) => json!(number),
        Kind::StringValue(text) => json!(text),
        Kind::BoolValue(is) => json!(is),
        Kind::ListValue(list) => list.values.iter().map(any_value).collect(),
        Kind::StructValue(_) => unreachable!("no strategy makes one"),
    }
}

#[test]
fn stubs_write_the_bytes_that_our_messages_write() {
    let mut lines = Vec::new();
    let mut requests = draw(requests());
    for request in &mut requests {
        for descriptor in &mut request.descriptors {
            // The stubs cannot write these.
            descriptor.is_negative_hits = false;
            descriptor.limit =
                descriptor.limit.map(|limit| RateLimitOverride { unit_multiplier: None, ..limit });
        }
        let fields = request_fields(request);
        lines.push(json!({ "kind": "request", "fields": fields, "bytes": hex(&request.encode_to_vec()) }));
    }
    for response in draw(responses()) {
        let fields = response_fields(&response);
        lines.push(json!({ "kind": "response", "fields": fields, "bytes": hex(&response.encode_to_vec()) }));
    }
    let answers = run(&["messages"], &lines);
    assert_eq!(answers.len(), 2 * MESSAGES);
    let mut unordered = 0;
    for (line, answer) in lines.iter().zip(answers) {
        assert_eq!((&answer["equal"], &answer["unknown"]), (&json!(true), &json!([])), "{line}");
        // Protobuf does not define the order of a map's entries, and lets writers leave out an empty key.
        let metadata = line["fields"]["dynamic_metadata"].as_object();
        if metadata.is_some_and(|map| map.len() > 1 || map.contains_key("")) {
            unordered += 1;
            continue;
        }
        let bytes = &line["bytes"];
        assert_eq!((&answer["built"], &answer["read"]), (bytes, bytes), "{line}");
    }
    assert!(unordered < MESSAGES / 2, "{unordered} messages were not compared by bytes");
}

#[test]
fn stubs_keep_the_bytes_of_newer_fields() {
    let requests = draw(requests());
    let line = |request: &RateLimitRequest| json!({ "kind": "request", "fields": {}, "bytes": hex(&request.encode_to_vec()) });
    let lines: Vec<Value> = requests.iter().map(line).collect();
    let answers = run(&["messages"], &lines);
    let mut seen = 0;
    for (request, (line, answer)) in requests.iter().zip(lines.iter().zip(answers)) {
        assert_eq!(answer["read"], line["bytes"], "{request:?}");
        // Field 3 of the limit, and field 4 of the descriptor.
        let newer = |descriptor: &RateLimitDescriptor| {
            let multiplier = descriptor.limit.and_then(|limit| limit.unit_multiplier).map(|_| 3);
            descriptor.is_negative_hits.then_some(4).into_iter().chain(multiplier)
        };
        let expected: Vec<u32> = request.descriptors.iter().flat_map(newer).collect();
        assert_eq!(answer["unknown"], json!(expected), "{request:?}");
        seen += expected.len();
    }
    assert!(seen > MESSAGES, "{seen} newer fields");
}

#[test]
fn our_messages_keep_the_bytes_that_stubs_write() {
    let written = run(&["generate", &MESSAGES.to_string()], &[]);
    assert_eq!(written.len(), 2 * MESSAGES);
    for line in written {
        let bytes = unhex(&line["bytes"]);
        let again = match line["kind"].as_str() {
            Some("request") => RateLimitRequest::decode(&*bytes).expect("a message").encode_to_vec(),
            _ => RateLimitResponse::decode(&*bytes).expect("a message").encode_to_vec(),
        };
        assert_eq!(again, bytes, "{line}");
    }
}

#[test]
fn reflection_serves_definitions_that_agree_with_envoys() {
    let service = Service::start(&["--grpc-reflection"]);
    let files = service.reflected_files("envoy.service.ratelimit.v3.RateLimitService");
    let lines: Vec<Value> = files.iter().map(|file| json!({ "file": hex(file) })).collect();
    assert_eq!(lines.len(), 4, "one file for each package");
    let names = |answers: Vec<Value>| -> Vec<String> {
        let [answer] = &answers[..] else { panic!("{answers:?}") };
        let name = |difference: &Value| {
            assert_eq!(difference["theirs"], Value::Null, "{difference}");
            difference["name"].as_str().expect("text").to_owned()
        };
        let mut names: Vec<String> = answer.as_array().expect("a list").iter().map(name).collect();
        names.sort_unstable();
        names
    };
    assert_eq!(names(run(&["definitions"], &lines)), NEWER_THAN_THE_STUBS);
    let envoy = Tool::Envoy.command().get_program().to_str().expect("text").to_owned();
    assert_eq!(names(run(&["program", &envoy], &lines)), [""; 0]);
}
