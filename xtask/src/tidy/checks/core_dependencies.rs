//! The core depends only on the crates listed here, and through them on no runtime and no I/O.

use crate::tidy::Problem;
use crate::tidy::tree::{File, Tree};
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::Command;

pub(in crate::tidy) const MANIFEST: &str = "crates/core/Cargo.toml";

/// What the core may depend on directly, and why it does.
const ALLOWED: &[(&str, &str)] = &[
    ("blake3", "names and secrets become salts and keys"),
    ("jiff", "quota periods follow the calendar of a named zone; the zone data is compiled in"),
    ("siphasher", "the content bound to a request id is compared by hash"),
    ("smallvec", "the plan of an ordinary check allocates nothing"),
    ("thiserror", "errors are typed"),
    ("unicode-normalization", "spellings of one account name are one subject; its tables are compiled in"),
];

/// Runtimes, I/O, and sources of randomness. No dependency of a dependency may be one of these either.
const DENIED: &[&str] = &[
    "async-executor",
    "async-io",
    "async-std",
    "curl",
    "fs-err",
    "fs2",
    "getrandom",
    "glommio",
    "h2",
    "hyper",
    "hyper-util",
    "memmap2",
    "mio",
    "monoio",
    "native-tls",
    "nix",
    "notify",
    "openssl",
    "polling",
    "postgres",
    "quinn",
    "rand",
    "redis",
    "reqwest",
    "rusqlite",
    "rustix",
    "rustls",
    "smol",
    "socket2",
    "sqlx",
    "tempfile",
    "tokio",
    "tokio-postgres",
    "tokio-util",
    "tonic",
    "tracing-subscriber",
    "ureq",
    "walkdir",
];

/// Features that make an allowed crate read files.
const DENIED_FEATURES: &[(&str, &str)] =
    &[("jiff", "tz-system"), ("jiff", "tzdb-concatenated"), ("jiff", "tzdb-zoneinfo")];

/// Returns the tree of normal dependencies, on every system and with every feature: one line per crate with
/// its depth, name, version and, after a bar, its features.
pub(in crate::tidy) fn resolve(root: &Path) -> Result<String> {
    let output = Command::new("cargo")
        .args(["tree", "--package", "tollgate-core", "--edges", "normal", "--all-features"])
        .args(["--target", "all", "--locked", "--prefix", "depth", "--format", "{p}|{f}"])
        .current_dir(root)
        .output()
        .context("cannot run cargo")?;
    if !output.status.success() {
        bail!("cargo tree failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8(output.stdout)?)
}

pub(in crate::tidy) fn check(tree: &Tree, resolved: &str) -> Vec<Problem> {
    let manifest = tree.file(MANIFEST).and_then(File::text).unwrap_or_default();
    let mut problems = Vec::new();
    let mut direct = Vec::new();
    for line in resolved.lines() {
        let (depth, rest) = line.split_at(line.find(|c: char| !c.is_ascii_digit()).unwrap_or(line.len()));
        let (package, features) = rest.split_once('|').unwrap_or((rest, ""));
        let name = package.split(' ').next().unwrap_or(package);
        match depth {
            "0" => continue,
            "1" => direct.push(name),
            _ => {}
        }
        let brought_by = direct.last().copied().unwrap_or(name);
        let mut problem = |what, fix: String| {
            problems.push(Problem::new(MANIFEST, line_of(manifest, brought_by), what, fix));
        };
        if depth == "1" && !ALLOWED.iter().any(|(allowed, _)| *allowed == name) {
            let fix = format!("do without it, or list it with its reason in {}", file!());
            problem(format!("the core may not depend on {name}"), fix);
        }
        if DENIED.contains(&name) {
            let fix = format!("see `cargo tree -p tollgate-core -e normal -i {name}`; drop it from the core");
            problem(format!("the core depends on {name} through {brought_by}"), fix);
        }
        for (_, feature) in DENIED_FEATURES.iter().filter(|(denied, _)| *denied == name) {
            if features.split([',', ' ']).any(|found| found == *feature) {
                let fix = format!("build {name} for the core without `{feature}`");
                problem(format!("the core uses {name} with `{feature}`, which reads files"), fix);
            }
        }
    }
    for (name, _) in ALLOWED.iter().filter(|(name, _)| !direct.contains(name)) {
        let what = format!("the core does not depend on {name}, which is allowed");
        problems.push(Problem::new(MANIFEST, 1, what, format!("take {name} off the list in {}", file!())));
    }
    problems
}

/// The line of the manifest that names a dependency.
fn line_of(manifest: &str, name: &str) -> usize {
    let names = |line: &str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['.', ' ', '=']));
    manifest.lines().position(names).map_or(1, |index| index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLEAN: &str = "0tollgate-core v0.1.0 (here)|\n1blake3 v1.8.7|pure\n2cfg-if v1.0.5|\n1jiff v0.2.39|std\n\
                         1siphasher v1.0.1|\n1smallvec v1.16.4|\n1thiserror v2.0.21|std\n1unicode-normalization v0.1.25|\n";

    fn problems(resolved: &str) -> Vec<(usize, String)> {
        let manifest = "[dependencies]\nblake3.workspace = true\njiff = \"0.2\"\nserde.workspace = true\n";
        let problems = check(&Tree::of(&[(MANIFEST, manifest)]), resolved);
        problems.into_iter().map(|problem| (problem.line, problem.what)).collect()
    }

    #[test]
    fn the_allowed_dependencies_pass() {
        assert_eq!(problems(CLEAN), []);
    }

    #[test]
    fn a_new_direct_dependency_is_a_problem() {
        let found = problems(&format!("{CLEAN}1serde v1.0.0|\n"));
        assert_eq!(found, [(4, "the core may not depend on serde".to_owned())]);
    }

    #[test]
    fn a_runtime_below_an_allowed_dependency_is_a_problem_of_that_dependency() {
        let found =
            problems(&CLEAN.replace("2cfg-if v1.0.5|\n", "2cfg-if v1.0.5|\n3mio v1.0.0|os-poll (*)\n"));
        assert_eq!(found, [(2, "the core depends on mio through blake3".to_owned())]);
    }

    #[test]
    fn a_feature_that_reads_files_is_a_problem() {
        let found = problems(&CLEAN.replace("1jiff v0.2.39|std", "1jiff v0.2.39|std,tzdb-zoneinfo (*)"));
        assert_eq!(found, [(3, "the core uses jiff with `tzdb-zoneinfo`, which reads files".to_owned())]);
    }

    #[test]
    fn a_dependency_that_is_allowed_for_nothing_is_a_problem() {
        let found = problems(&CLEAN.replace("1smallvec v1.16.4|\n", ""));
        assert_eq!(found, [(1, "the core does not depend on smallvec, which is allowed".to_owned())]);
    }
}
