//! What a new user tries in the first hour: commands, requests, a reload, a store that is down.

mod commands;
mod reload;
mod requests;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tollgate_testkit::serving::Serving;

const KEY: &str = "6a4c1f0d9e8b7a695847362514039281706f5e4d3c2b1a0918f7e6d5c4b3a291";
const RULES: &str = "version: 1
rules:
  - id: searches
    description: Two an hour.
    match: { action: search }
    per: [tenant, user | ip]
    missing: refuse
    limit: { sliding-log: 2/h }
  - { id: trial, match: { action: search }, per: tenant, mode: shadow, limit: { fixed-window: 1/h } }
  - { id: exports, match: { action: export }, per: tenant, limit: { concurrency: 1, lease: 1h } }
overrides:
  - { rule: searches, when: { plan: pro }, limit: { sliding-log: 20/h }, until: 2099-01-01T00:00:00Z, reason: launch }
";

fn start(args: &[&str]) -> Serving {
    Serving::start(env!("CARGO_BIN_EXE_tollgate"), args)
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

fn put(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    fs::write(&path, text).expect("a file can be written");
    path.to_str().expect("a path of text").to_owned()
}

/// A response: status, head in lower case, and body.
struct Response {
    status: u16,
    head: String,
    body: Value,
}

/// Sends a request with curl.
fn curl(args: &[&str]) -> Response {
    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--max-time", "20", "--include"])
        .args(args)
        .output()
        .expect("curl runs");
    let text = String::from_utf8(output.stdout).expect("text");
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{text}"));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    let body = serde_json::from_str(body).unwrap_or_else(|_| json!(body));
    Response { status, head: head.to_ascii_lowercase(), body }
}

fn post(server: &Serving, path: &str, attributes: &Value) -> Response {
    let body = json!({ "attributes": attributes }).to_string();
    curl(&["-H", "content-type: application/json", "-d", &body, &format!("http://{}{path}", server.http)])
}

fn get(server: &Serving, path: &str) -> Response {
    curl(&[&format!("http://{}{path}", server.http)])
}

struct Run {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

/// Runs a command in a folder.
fn tollgate(folder: &Path, args: &[&str]) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("TOLLGATE_")) {
        command.env_remove(name);
    }
    let output =
        command.args(args).current_dir(folder).stdin(Stdio::null()).output().expect("the binary runs");
    let text = |bytes| String::from_utf8(bytes).expect("it prints text");
    Run { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}
