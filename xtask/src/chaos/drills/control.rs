//! Drills of the control plane: live changes, and two builds side by side.

use std::path::Path;
use std::process::Command;

use tollgate_testkit::drill::{DrillError, upgrade};

use super::{Options, Problems};
use crate::chaos::server_binary;

/// The long forms of tests: the package, the test target, the variable that makes it long, and its tests.
const LONG_TESTS: [(&str, &str, (&str, &str), &str); 2] = [
    ("tollgate-server", "ledger", ("TOLLGATE_CONTROL_CHANGES", "200"), "control::fleet"),
    ("tollgate-database", "suite", ("TOLLGATE_CONTROL_CALLS", "10000"), "passes_the_control_suite"),
];

/// Runs the tests of live changes in their long form, and shows their figures.
pub(super) fn changes(_: &Options) -> Result<Problems, DrillError> {
    let mut problems = Vec::new();
    for (package, target, (name, value), filter) in LONG_TESTS {
        let mut tests = Command::new(env!("CARGO"));
        tests.args(["test", "--locked", "-p", package, "--test", target, filter, "--", "--nocapture"]);
        if !tests.env(name, value).status()?.success() {
            problems.push(format!("changes: tests `{filter}` of {package} fail with {name}={value}"));
        }
    }
    Ok(problems)
}

/// Runs an earlier build beside this one. Without one, this build runs beside itself.
pub(super) fn upgrades(options: &Options) -> Result<Problems, DrillError> {
    let current = server_binary(options)?;
    let previous = match (&options.previous_binary, &options.previous) {
        (Some(binary), _) => binary.clone(),
        (None, Some(revision)) => built(revision)?,
        (None, None) => {
            println!("upgrade: no --previous, so this build runs beside itself");
            current.clone()
        }
    };
    let found = upgrade(&previous, &current, options.subjects, options.seed)?;
    println!("upgrade: {found}");
    Ok(found.wrong.into_iter().map(|wrong| format!("upgrade: {wrong}")).collect())
}

/// Builds the server of an earlier commit in a worktree below `target`.
fn built(revision: &str) -> Result<String, DrillError> {
    let target = std::env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".to_owned());
    let named = Command::new("git")
        .args(["rev-parse", "--verify", "--short", &format!("{revision}^{{commit}}")])
        .output()?;
    if !named.status.success() {
        return Err(format!("unknown revision `{revision}`").into());
    }
    let commit = String::from_utf8(named.stdout)?.trim().to_owned();
    let worktree = format!("{target}/previous/{commit}");
    if !Path::new(&worktree).exists() {
        let added = Command::new("git").args(["worktree", "add", "--detach", &worktree, &commit]).status()?;
        if !added.success() {
            return Err(format!("cannot check out {commit} in {worktree}").into());
        }
    }
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--release", "--locked", "--bin", "tollgate"]).current_dir(&worktree);
    if !build.env_remove("CARGO_TARGET_DIR").status()?.success() {
        return Err(format!("the server of {commit} was not built").into());
    }
    Ok(format!("{worktree}/target/release/tollgate"))
}
