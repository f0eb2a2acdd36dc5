//! The OpenAPI description is correct: requests that are generated from it get the described responses.

use serde_json::Value;
use tollgate_testkit::tools::Tool;

use super::served;

#[test]
fn schemathesis_finds_nothing() {
    let (serving, _) = served();
    let config = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/http/schemathesis.toml");
    let folder = tempfile::tempdir().expect("a folder");
    let output = Tool::Schemathesis
        .command()
        .args(["--config-file", config, "run", &format!("http://{}/openapi.json", serving.http)])
        .args(["--phases", "examples,coverage,fuzzing", "--max-examples", "5", "--seed", "7"])
        .args(["--request-timeout", "20", "--warnings", "off"])
        .current_dir(folder.path())
        .output()
        .expect("schemathesis runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn the_description_lists_exactly_the_paths() {
    let (_serving, mut client) = served();
    let described = client.get("/openapi.json").json();
    let paths = described["paths"].as_object().expect("an object");
    // The response of this path does not end.
    const ENDLESS: &str = "/v1/events";
    for (path, operations) in paths.iter().filter(|(path, _)| *path != ENDLESS) {
        for method in ["get", "post"] {
            let answer = if method == "get" { client.get(path) } else { client.post(path, "{}") };
            let is_there = operations.get(method).is_some();
            assert_eq!(answer.status != 405, is_there, "{method} {path}: {answer:?}");
            assert_ne!(answer.status, 404, "{path}");
        }
    }
    let routes = include_str!("../../src/serve/edge/http/route.rs");
    let known = routes.lines().filter_map(|line| line.trim().strip_prefix('"')?.split_once("\" => Route::"));
    let known: Vec<&str> = known.map(|(path, _)| path).collect();
    assert!(known.len() > 10);
    for path in known {
        assert!(paths.contains_key(path), "{path} is not described");
    }
    assert_eq!(described["openapi"], Value::from("3.1.0"));
}
