//! Runs `tollgate check` in a folder with rules, a key and passwords.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

pub(crate) const KEY: &str = "6a4c1f0d9e8b7a695847362514039281706f5e4d3c2b1a0918f7e6d5c4b3a291";
/// Exactly three per hour.
const RULES: &str = "version: 1\nrules:\n  - { id: a, per: user, missing: refuse, limit: { sliding-window: 3/h, buckets: 1, counting: strict } }\n";

pub(crate) struct Run {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Writes rules, a key and passwords to a folder.
pub(crate) fn fill(folder: &Path) -> PathBuf {
    for (name, text) in [("rules.yaml", RULES), ("key", KEY), ("password", "s3cr3t\n"), ("wrong", "wr0ng\n")]
    {
        std::fs::write(folder.join(name), text).expect("a file can be written");
    }
    folder.to_owned()
}

pub(crate) fn check(folder: &Path, variables: &[(&str, &str)], args: &[&str]) -> Run {
    check_by("rules.yaml", folder, variables, args)
}

/// Runs a check with another rules file.
pub(crate) fn check_by(rules: &str, folder: &Path, variables: &[(&str, &str)], args: &[&str]) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.args(["check", "--rules", rules]).args(args).current_dir(folder);
    for name in
        ["CLICOLOR_FORCE", "TOLLGATE_HASH_KEY", "TOLLGATE_STORE_PASSWORD", "TOLLGATE_STORE_SENTINEL_PASSWORD"]
    {
        command.env_remove(name);
    }
    let output = command.envs(variables.iter().copied()).output().expect("the binary runs");
    let text = |bytes| String::from_utf8(bytes).expect("it prints text");
    Run { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

pub(crate) fn decisions(run: &Run) -> Vec<Value> {
    run.stdout.lines().map(|line| serde_json::from_str(line).expect("an object")).collect()
}
