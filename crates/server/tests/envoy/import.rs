//! Imports rules of other limiters. Everything is carried over or reported.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn tollgate(args: &[&str]) -> Output {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.current_dir(root).env("NO_COLOR", "1").args(args).output().expect("the binary runs")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

/// Imports this text. Returns standard output, standard error and the exit code.
fn imported(from: &str, file: &str) -> (String, String, Option<i32>) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("file.yaml");
    std::fs::write(&path, file).expect("a file can be written");
    let output = tollgate(&["import", from, path.to_str().expect("text")]);
    (text(&output.stdout).to_owned(), text(&output.stderr).to_owned(), output.status.code())
}

/// Returns the decision of one check with these rules.
fn decided(rules: &str, attributes: &[&str]) -> Value {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("rules.yaml");
    std::fs::write(&path, rules).expect("a file can be written");
    let path = path.to_str().expect("text");
    let output = tollgate(&[&["check", "--format", "json", "--rules", path], attributes].concat());
    let decision: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    decision
}

#[test]
fn imported_examples_are_valid_rules_without_warnings() {
    for from in ["envoy", "limitador"] {
        let file = if from == "envoy" { "ratelimit" } else { "limits" };
        let output = tollgate(&["import", from, &format!("examples/gateways/envoy/{file}.yaml")]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("rules.yaml");
        std::fs::write(&path, &output.stdout).expect("a file can be written");
        let linted = tollgate(&["lint", path.to_str().expect("text")]);
        assert_eq!(linted.status.code(), Some(0), "{}", text(&linted.stdout));
        assert!(!text(&linted.stdout).contains("warning"), "{}", text(&linted.stdout));
    }
}

#[test]
fn several_files_become_one_rules_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("a file can be written");
        path.to_str().expect("text").to_owned()
    };
    let limit = "rate_limit: { unit: day, requests_per_unit: 1 }";
    let one = path("one.yaml", &format!("domain: one\ndescriptors: [{{ key: k, {limit} }}]"));
    let two = path("two.yaml", &format!("domain: two\ndescriptors: [{{ key: k, {limit} }}]"));
    let more = path("more.yaml", &format!("domain: one\ndescriptors: [{{ key: l, {limit} }}]"));
    let output = tollgate(&["import", "envoy", &one, &two, &more]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    for (domain, key, expected) in
        [("one", "k", Some(1)), ("two", "k", Some(1)), ("one", "l", Some(1)), ("two", "l", None)]
    {
        let attributes = [format!("domain={domain}"), format!("descriptor={key}"), format!("{key}=v")];
        let decision = decided(text(&output.stdout), &attributes.each_ref().map(String::as_str));
        assert_eq!(decision["limit"].as_u64(), expected, "{domain} {key}: {decision:#}");
    }
    let refused = tollgate(&["import", "envoy", &one, &two, &one]);
    assert_eq!((text(&refused.stdout), refused.status.code()), ("", Some(2)), "{refused:?}");
    assert!(text(&refused.stderr).contains("one.yaml:2:"), "{refused:?}");
}

#[test]
fn a_descriptor_gets_the_limit_that_it_had_before_the_import() {
    let file = include_str!("../../../../examples/gateways/envoy/ratelimit.yaml");
    let (rules, _, _) = imported("envoy", file);
    let search = ["domain=shop", "descriptor=action,api_key", "action=search"];
    for (attributes, expected) in [
        ([&search[..], &["api_key=k-1"]].concat(), Some(5)),
        ([&search[..], &["api_key=partner-x"]].concat(), Some(500)),
        ([&search[..], &["api_key=partner-acme"]].concat(), Some(9_000)),
        (vec!["domain=shop", "descriptor=remote_address", "remote_address=192.0.2.9"], Some(50)),
        // Unlimited, another domain, and a descriptor without a rule.
        (vec!["domain=shop", "descriptor=remote_address", "remote_address=192.0.2.10"], None),
        (vec!["domain=other", "descriptor=remote_address", "remote_address=192.0.2.9"], None),
        (vec!["domain=shop", "descriptor=action", "action=search"], None),
        // A value without a limit is not counted, although its key has a limit.
        ([&search[..], &["api_key=monitoring"]].concat(), None),
        // An empty value is counted.
        ([&search[..], &["api_key="]].concat(), Some(5)),
    ] {
        let decision = decided(&rules, &attributes);
        let limit = decision["limit"].as_u64();
        assert_eq!(limit, expected, "{attributes:?}: {decision:#}");
    }
}

#[test]
fn an_invalid_file_is_not_imported_and_all_its_problems_are_reported() {
    for (from, file, expected) in [
        ("envoy", "descriptors: []", &["invalid `domain`: expected a text"][..]),
        ("envoy", "domain: d\ndescriptors: [{ value: v }]", &["invalid `key`: expected a text"]),
        (
            "envoy",
            "domain: d\ndescriptors:\n  - { key: k, rate_limit: { unit: fortnight, requests_per_unit: 1 } }\n  - { key: l, rate_limit: { unit: day } }",
            &["unknown unit: write second", "invalid `requests_per_unit`: expected a whole number"],
        ),
        ("envoy", "domain: [", &["error"]),
        ("limitador", "namespace: d", &["a list of limits"]),
        (
            "limitador",
            "- { namespace: d, max_value: -1, seconds: 0 }",
            &["invalid `max_value`: expected a whole number"],
        ),
        ("limitador", "- { namespace: d, max_value: 1, seconds: 0 }", &["invalid `seconds`: 0"]),
        // A value of the wrong type: if it were ignored, a limit would be lost or apply to all requests.
        (
            "envoy",
            "domain: d\ndescriptors: { key: k }",
            &["invalid `descriptors`: expected a list, found a map"],
        ),
        (
            "envoy",
            "domain: d\ndescriptors: [{ key: k, descriptors: x }]",
            &["invalid `descriptors`: expected a list"],
        ),
        (
            "envoy",
            "domain: d\ndescriptors: [{ key: k, value: [v] }]",
            &["invalid `value`: expected a text, found a list"],
        ),
        (
            "envoy",
            "domain: d\ndescriptors:\n  - key: k\n    shadow_mode: \"yes\"\n    detailed_metric: 1\n    value_to_metric: 2\n    share_threshold: 3\n    rate_limit: { unit: day, requests_per_unit: 1, replaces: x, name: [n] }",
            &[
                "invalid `shadow_mode`: expected true or false",
                "invalid `detailed_metric`: expected true or false, found the number 1",
                "invalid `value_to_metric`: expected true or false",
                "invalid `share_threshold`: expected true or false",
                "invalid `replaces`: expected a list",
                "invalid `name`: expected a text",
            ],
        ),
        (
            "envoy",
            "domain: d\ndescriptors: [{ key: k, rate_limit: { unlimited: 1, unit: day, requests_per_unit: 1 } }]",
            &["invalid `unlimited`: expected true or false"],
        ),
        (
            "limitador",
            "- { namespace: d, max_value: 1, seconds: 1, conditions: \"a == 'b'\", variables: u, name: {} }",
            &[
                "invalid `conditions`: expected a list",
                "invalid `variables`: expected a list",
                "invalid `name`: expected a text, found a map",
            ],
        ),
        (
            "limitador",
            "- { namespace: d, max_value: 1, seconds: 1, conditions: [[a]], variables: [{}] }",
            &[
                "invalid item of `conditions`: expected a text, found a list",
                "invalid item of `variables`: expected a text",
            ],
        ),
    ] {
        let (rules, stderr, code) = imported(from, file);
        assert_eq!((rules.as_str(), code), ("", Some(2)), "{file}");
        for part in expected {
            assert!(stderr.contains(part), "{file}\n{stderr}");
        }
    }
}

#[test]
fn nothing_in_a_file_breaks_out_of_its_comment_or_its_quotes() {
    let file = "domain: \"a\\nrules: [] #\"\ndescriptors:\n  - key: \"k\"\n    value: \"v: { x, \\\"y\\\" }*z\"\n    rate_limit: { unit: day, requests_per_unit: 1, name: \"- id: evil\\n\" }\n";
    let (rules, _, code) = imported("envoy", file);
    assert_eq!(code, Some(0), "{rules}");
    let decision = decided(&rules, &["domain=a\nrules: [] #", "descriptor=k", "k=v: { x, \"y\" }*z"]);
    let limit = decision["limit"].as_u64();
    assert_eq!(limit, Some(1), "{rules}\n{decision:#}");
}
