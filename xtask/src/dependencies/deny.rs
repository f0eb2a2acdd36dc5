//! `cargo xtask deny`: licences, bans, sources and advisories of all dependencies, by the lists in `deny.toml`.
//!
//! The lists are those of cargo-deny, which takes minutes to compile and has no current prebuilt package. This check
//! needs `cargo metadata` and the snapshot of advisories in the tree.

mod licence;

use crate::dependencies::advisories::Advisories;
use crate::dependencies::{self, Metadata, Package};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};

const CONFIGURATION: &str = "deny.toml";

#[derive(Debug, Default, clap::Args)]
pub(crate) struct Options {
    /// First renew the snapshot of advisories in the tree from this checkout of the RustSec database.
    #[arg(long, value_name = "DIR")]
    advisories: Option<PathBuf>,
}

/// The lists of `deny.toml`.
#[derive(Debug, PartialEq, Eq)]
struct Policy {
    licences: Vec<String>,
    banned: Vec<String>,
    registries: Vec<String>,
    /// Ids of advisories that do not concern this tree.
    ignored_advisories: Vec<String>,
}

/// Prints every dependency that is not allowed, and fails if there is one.
pub(crate) fn run(root: &Path, options: &Options) -> Result<()> {
    if let Some(database) = &options.advisories {
        Advisories::from_database(database)?.write(root)?;
    }
    let advisories = Advisories::read(root)?;
    let text = std::fs::read_to_string(root.join(CONFIGURATION)).context(CONFIGURATION)?;
    let policy = Policy::read(&text)?;
    let metadata = dependencies::resolve(root)?;
    let mut problems = policy.problems(&metadata);
    problems.extend(advisories.problems(&metadata, &policy.ignored_advisories)?);
    for problem in &problems {
        eprintln!("{problem}");
    }
    if !problems.is_empty() {
        bail!("deny: {} problems", problems.len());
    }
    println!(
        "deny: {} packages, no problem; {} advisories, the newest of {}",
        metadata.packages.len(),
        advisories.len(),
        advisories.newest
    );
    Ok(())
}

impl Policy {
    fn read(text: &str) -> Result<Policy> {
        Ok(Policy {
            licences: list(text, "licenses", "allow")?,
            banned: list(text, "bans", "deny")?,
            registries: list(text, "sources", "allow-registry")?,
            ignored_advisories: list(text, "advisories", "ignore")?,
        })
    }

    fn problems(&self, metadata: &Metadata) -> Vec<String> {
        metadata.packages.iter().flat_map(|package| self.problems_of(package)).collect()
    }

    fn problems_of(&self, package: &Package) -> Vec<String> {
        let Package { name, version, license, source, .. } = package;
        let mut problems = Vec::new();
        let mut report = |what: String| problems.push(format!("{CONFIGURATION}: {name} {version}: {what}"));
        match license.as_deref().map(|text| (text, licence::is_met(text, &self.licences))) {
            Some((_, Ok(true))) => {}
            Some((text, Ok(false))) => report(format!("the licence `{text}` is not allowed")),
            Some((text, Err(error))) => report(format!("invalid licence expression `{text}`: {error}")),
            None => report("no licence".to_owned()),
        }
        if self.banned.contains(name) {
            report(format!("the crate is banned; see `cargo tree -i {name}`"));
        }
        if let Some(source) = source {
            let is_allowed = source
                .strip_prefix("registry+")
                .is_some_and(|registry| self.registries.iter().any(|allowed| allowed == registry));
            if !is_allowed {
                report(format!("the source {source} is not allowed"));
            }
        }
        problems
    }
}

/// Reads a list with one quoted text per line.
fn list(text: &str, section: &str, key: &str) -> Result<Vec<String>> {
    let header = format!("[{section}]");
    let start = format!("{key} = [");
    let mut lines =
        text.lines().skip_while(|line| *line != header).skip(1).take_while(|line| !line.starts_with('['));
    lines
        .find(|line| *line == start)
        .with_context(|| format!("{CONFIGURATION} has no list {key} in {header}"))?;
    let mut values = Vec::new();
    for line in lines.map(str::trim).take_while(|line| *line != "]").filter(|line| !line.starts_with('#')) {
        let value = line.strip_prefix('"').and_then(|rest| rest.strip_suffix("\","));
        values.push(
            value
                .with_context(|| format!("{CONFIGURATION}: expected one quoted text, found {line}"))?
                .to_owned(),
        );
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: &str = "[advisories]\nignore = [\n]\n\n[licenses]\nallow = [\n    \"MIT\",\n]\n\n[bans]\ndeny = [\n    # Not maintained.\n    \"old\",\n]\n\n\
                          [sources]\nallow-registry = [\n    \"https://registry\",\n]\n";

    fn problems(name: &str, license: Option<&str>, source: Option<&str>) -> usize {
        let package = serde_json::json!({
            "id": name, "name": name, "version": "1.0.0", "license": license, "description": null, "source": source,
        });
        let metadata = serde_json::json!({ "packages": [package], "resolve": { "nodes": [] } });
        let metadata = dependencies::parse(metadata.to_string().as_bytes()).expect("valid");
        Policy::read(POLICY).expect("valid").problems(&metadata).len()
    }

    #[test]
    fn a_dependency_needs_an_allowed_licence_name_and_source() {
        let registry = Some("registry+https://registry");
        for (name, license, source, expected) in [
            ("one", Some("MIT OR Apache-2.0"), registry, 0),
            ("one", Some("MIT"), None, 0),
            ("one", Some("GPL-3.0"), registry, 1),
            ("one", None, registry, 1),
            ("one", Some("MIT OR"), registry, 1),
            ("old", Some("MIT"), registry, 1),
            ("one", Some("MIT"), Some("registry+https://other"), 1),
            ("one", Some("MIT"), Some("git+https://registry"), 1),
            ("old", Some("GPL-3.0"), Some("git+https://elsewhere"), 3),
        ] {
            assert_eq!(problems(name, license, source), expected, "{name} {license:?} {source:?}");
        }
    }

    #[test]
    fn the_lists_of_the_tree_can_be_read_and_a_missing_list_is_an_error() {
        let policy = Policy::read(include_str!("../../../deny.toml")).expect("valid");
        assert!(
            policy.licences.contains(&"MIT".to_owned()) && policy.banned.contains(&"openssl-sys".to_owned())
        );
        assert_eq!(policy.registries.len(), 1);
        assert!(Policy::read("[licenses]\n").is_err());
        assert!(Policy::read(&POLICY.replace("\"MIT\",", "MIT")).is_err());
    }
}
