//! `tollgate doctor` against real servers: each check finds what is really wrong, and nothing on a right one.

mod database;
mod keys;
mod right;
mod serving;
mod store;
mod topology;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;
use tollgate_testkit::redis::{Admin, Server};

use crate::run::fill;

const BINARY: &str = env!("CARGO_BIN_EXE_tollgate");
const NAMESPACE: &str = "tg:1:default";
/// A subject as keys have it.
const SUBJECT: &str = "AAaW32L4l3DTl86dhIZV1r";

/// The ACL lines of the guide, for one server: that of servers, and that of the doctor.
fn acl_lines() -> [String; 2] {
    let page =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guides/redis.md"));
    let page = page.expect("the page can be read");
    let line = |name: &str| {
        let found = page.lines().find_map(|line| line.strip_prefix(&format!("user {name} ")));
        format!("{name} {}", found.unwrap_or_else(|| panic!("the page has no line of {name}")))
    };
    [line("tollgate"), line("doctor")]
}

fn command(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    command
        .args(["doctor", "--rules", "rules.yaml", "--hash-key-file", "key"])
        .args(args)
        .current_dir(folder);
    clear(&mut command);
    command
}

fn clear(command: &mut Command) {
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("TOLLGATE_")) {
        command.env_remove(name);
    }
    command.env_remove("CLICOLOR_FORCE");
}

/// The exit code and the findings.
fn examine(mut command: Command) -> (Option<i32>, Vec<Value>) {
    let output = command.args(["--format", "json"]).output().expect("the binary runs");
    let text = String::from_utf8(output.stdout).expect("text");
    let report: Value = serde_json::from_str(&text)
        .unwrap_or_else(|error| panic!("{error}: {text}{}", String::from_utf8_lossy(&output.stderr)));
    (output.status.code(), report["findings"].as_array().expect("findings").clone())
}

/// Waits until a condition holds, on a machine that is busy with other tests.
fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(40);
    while !holds() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Examines a store, and returns status and reason of one check.
fn check(folder: &Path, url: &str, id: &str) -> (String, String) {
    let (_, findings) = examine(command(folder, &["--store", url, "--only", id]));
    of(&findings, id)
}

fn of(findings: &[Value], id: &str) -> (String, String) {
    let finding = findings.iter().find(|finding| finding["id"] == id);
    let finding = finding.unwrap_or_else(|| panic!("no finding of {id}: {findings:?}"));
    let text = |name: &str| finding[name].as_str().unwrap_or_default().to_owned();
    if ["warn", "fail"].contains(&text("status").as_str()) {
        assert!(!text("fix").is_empty(), "{finding}");
    }
    (text("status"), text("reason"))
}

#[track_caller]
fn assert_found((status, reason): (String, String), expected: &str, part: &str) {
    assert!(status == expected && reason.contains(part), "{status}: {reason}; expected {expected}: {part}");
}

/// One rule without warnings.
fn rules(limit: &str) -> String {
    format!(
        "version: 1\nrules:\n  - {{ id: a, description: A, per: user, missing: refuse, on_failure: open, limit: {{ {limit} }} }}\n"
    )
}

/// A folder with rules that have no warnings.
fn folder(server: &Server) -> PathBuf {
    let folder = fill(server.folder());
    std::fs::write(folder.join("rules.yaml"), rules("fixed-window: 3/h")).expect("a file");
    folder
}

fn plant(admin: &mut Admin, words: &[&str]) {
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    admin.command(&words).expect("the server takes it");
}
