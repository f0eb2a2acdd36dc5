//! Every example runs to its end and prints what its first lines promise.
//!
//! Cargo builds examples before it runs tests, and puts them into a folder next to that of the tests.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Examples and what they must print.
const EXAMPLES: [(&str, &[&str]); 5] = [
    (
        "axum",
        &[
            "HTTP/1.1 200 OK",
            r#"ratelimit: "search-per-key";r=0;t=1"#,
            "HTTP/1.1 429 Too Many Requests",
            "content-type: application/problem+json",
            "retry-after: ",
            "three requests of key k-1 served, the fourth refused, others unaffected",
        ],
    ),
    (
        "tonic",
        &[
            r#"billing: ok, ratelimit: "checks-per-caller";r=0;t="#,
            "billing: ResourceExhausted, The limit is used up",
            "anonymous: PermissionDenied, Forbidden",
            "search: ok",
        ],
    ),
    ("billing", &["job-2: admitted", "job-3: refused", "job-1: admitted", "acme: 900 used, 100 left"]),
    ("worker", &["worker 3 sends", "ms away: not sent"]),
    (
        "llm_budget",
        &[
            "4000 reserved: not now",
            "tokens-per-tenant: 2800 given back",
            "8800 remaining",
            "4300 remaining",
            "cost 10001 exceeds the capacity 10000",
        ],
    ),
];

#[test]
fn every_example_prints_what_it_promises() {
    for (name, lines) in EXAMPLES {
        let output = Command::new(program(name)).output().unwrap_or_else(|error| {
            panic!("{name}: {error}; `cargo build --examples` builds it, and so does `cargo test` without a target")
        });
        let [printed, errors] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
        assert!(output.status.success(), "{name}: {}\n{printed}\n{errors}", output.status);
        for line in lines {
            assert!(printed.contains(line), "{name} does not print {line:?}:\n{printed}");
        }
    }
}

#[test]
fn every_example_is_tested() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let mut found: Vec<String> = folder
        .read_dir()
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    let mut known = EXAMPLES.map(|(name, _)| name);
    found.sort();
    known.sort_unstable();
    assert_eq!(found, known);
}

fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("the test has a path");
    let profile = test.parent().and_then(Path::parent).expect("the test is two folders below");
    profile.join("examples").join(name).with_extension(std::env::consts::EXE_EXTENSION)
}
