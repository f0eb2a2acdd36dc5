//! The resolved dependencies of the workspace, as `cargo metadata` describes them.

mod advisories;
pub(crate) mod deny;
pub(crate) mod sbom;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

#[derive(Debug, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) license: Option<String>,
    pub(crate) description: Option<String>,
    /// `None` for a package of this tree.
    pub(crate) source: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Debug, Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Debug, Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<DependencyKind>,
}

#[derive(Debug, Deserialize)]
struct DependencyKind {
    /// `None`, `build` or `dev`.
    kind: Option<String>,
}

/// Reads the dependencies that Cargo.lock names.
pub(crate) fn resolve(root: &Path) -> Result<Metadata> {
    let output = Command::new("cargo")
        .args(["metadata", "--format-version", "1", "--locked", "--all-features"])
        .current_dir(root)
        .output()
        .context("cannot run cargo")?;
    if !output.status.success() {
        bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    parse(&output.stdout)
}

pub(crate) fn parse(json: &[u8]) -> Result<Metadata> {
    serde_json::from_slice(json).context("cargo metadata printed something else")
}

impl Metadata {
    /// Returns the package with this id.
    pub(crate) fn package(&self, id: &str) -> Option<&Package> {
        self.packages.iter().find(|package| package.id == id)
    }

    /// Returns what ends up in a binary of the named package: all packages below it without those that only tests need.
    /// For each package, the ids of its direct dependencies.
    pub(crate) fn shipped_with(&self, name: &str) -> Result<BTreeMap<&str, BTreeSet<&str>>> {
        let root = self.packages.iter().find(|package| package.name == name && package.source.is_none());
        let root = root.with_context(|| format!("there is no package {name}"))?;
        let mut found: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        let mut open = vec![root.id.as_str()];
        while let Some(id) = open.pop() {
            if found.contains_key(id) {
                continue;
            }
            let node = self.resolve.nodes.iter().find(|node| node.id == id);
            let node = node.with_context(|| format!("{id} is not resolved"))?;
            let is_shipped = |dependency: &&Dependency| {
                dependency.dep_kinds.iter().any(|each| each.kind.as_deref() != Some("dev"))
            };
            let below: BTreeSet<&str> =
                node.deps.iter().filter(is_shipped).map(|dependency| dependency.pkg.as_str()).collect();
            open.extend(&below);
            found.insert(id, below);
        }
        Ok(found)
    }
}
