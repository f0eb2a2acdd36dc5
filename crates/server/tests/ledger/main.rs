//! The ledger of a real server, its commands, and what `kill -9` leaves of it.

mod client;
mod commands;
mod control;
mod crash;
mod http;
mod operations;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;
use tollgate_testkit::serving::Serving;

const BINARY: &str = env!("CARGO_BIN_EXE_tollgate");
const KEY: &str = "6a4c1f0d9e8b7a695847362514039281706f5e4d3c2b1a0918f7e6d5c4b3a291";

/// A folder with rules, the hash key and the database.
struct Workplace {
    folder: TempDir,
}

impl Workplace {
    fn new(rules: &str) -> Workplace {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("rules.yaml"), rules).expect("a file can be written");
        fs::write(folder.path().join("key"), KEY).expect("a file can be written");
        Workplace { folder }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().expect("a path of text").to_owned()
    }

    fn database(&self) -> String {
        format!("sqlite:{}", self.path("usage.db"))
    }

    fn serve(&self, more: &[&str]) -> Serving {
        let (rules, key, database) = (self.path("rules.yaml"), self.path("key"), self.database());
        let own = ["--database", database.as_str()];
        let own = if more.contains(&own[0]) { &[][..] } else { &own[..] };
        let args = ["--rules", &rules, "--hash-key-file", &key];
        Serving::start(BINARY, &[&args, own, more].concat())
    }

    /// Runs a command on the database and returns its exit code and its output.
    fn run(&self, args: &[&str]) -> (i32, String) {
        let mut command = Command::new(BINARY);
        command.args(args).env("TOLLGATE_DATABASE", self.database()).env("TOLLGATE_HASH_KEY", KEY);
        let Output { status, stdout, stderr } = command.output().expect("the binary runs");
        let text = String::from_utf8(stdout).expect("text") + &String::from_utf8(stderr).expect("text");
        (status.code().expect("it exits"), text)
    }

    /// Runs a command that prints one JSON value and succeeds.
    fn json(&self, args: &[&str]) -> Value {
        let (code, text) = self.run(&[args, &["--format", "json"]].concat());
        assert_eq!(code, 0, "{text}");
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }
}

fn stop(mut server: Serving) {
    server.signal("TERM");
    assert_eq!(server.exit_code(), Some(0));
}

fn exists(path: &str) -> bool {
    Path::new(path).exists()
}
