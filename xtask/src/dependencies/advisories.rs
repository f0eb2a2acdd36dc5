//! Known vulnerabilities of dependencies, by a snapshot of the RustSec database that is part of the tree.
//!
//! The snapshot has facts only: id, crate, kind and versions. `cargo xtask deny --advisories DIR` reads a checkout of the
//! database and writes it again.

use std::path::Path;

use anyhow::{Context, Result, bail};
use semver::{Version, VersionReq};
use serde::{Deserialize, Serialize};

use super::{Metadata, Package};

const SNAPSHOT: &str = "xtask/src/dependencies/advisories.json";

/// The advisories that were not withdrawn, sorted by id.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Advisories {
    /// The date of the newest advisory.
    pub(crate) newest: String,
    advisories: Vec<Advisory>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Advisory {
    id: String,
    package: String,
    /// `vulnerability`, or the database's word for something less: `unsound`, `unmaintained`, `notice`.
    kind: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    patched: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    unaffected: Vec<String>,
}

/// The first block of an advisory in the database.
#[derive(Deserialize)]
struct Front {
    advisory: Head,
    #[serde(default)]
    versions: Versions,
}

#[derive(Deserialize)]
struct Head {
    id: String,
    package: String,
    date: String,
    informational: Option<String>,
    withdrawn: Option<String>,
}

#[derive(Default, Deserialize)]
struct Versions {
    #[serde(default)]
    patched: Vec<String>,
    #[serde(default)]
    unaffected: Vec<String>,
}

impl Advisories {
    /// Reads the snapshot in the tree.
    pub(crate) fn read(root: &Path) -> Result<Advisories> {
        let text = std::fs::read(root.join(SNAPSHOT)).context(SNAPSHOT)?;
        serde_json::from_slice(&text).context(SNAPSHOT)
    }

    /// Reads a checkout of the database: `crates/NAME/ID.md`.
    pub(crate) fn from_database(database: &Path) -> Result<Advisories> {
        let mut advisories = Vec::new();
        let mut newest = String::new();
        for folder in entries(&database.join("crates"))? {
            for file in
                entries(&folder)?.iter().filter(|file| file.extension().is_some_and(|end| end == "md"))
            {
                let text = std::fs::read_to_string(file)?;
                let front = front(&text).with_context(|| file.display().to_string())?;
                if front.advisory.withdrawn.is_some() {
                    continue;
                }
                newest = newest.max(front.advisory.date.clone());
                advisories.push(Advisory::from(front));
            }
        }
        if advisories.is_empty() {
            bail!(
                "no advisory below {}; is it a checkout of the database?",
                database.join("crates").display()
            );
        }
        advisories.sort();
        Ok(Advisories { newest, advisories })
    }

    /// Writes the snapshot into the tree, with one advisory per line.
    pub(crate) fn write(&self, root: &Path) -> Result<()> {
        let lines: Vec<String> =
            self.advisories.iter().map(serde_json::to_string).collect::<Result<_, _>>()?;
        let newest = serde_json::to_string(&self.newest)?;
        let text = format!("{{\"newest\":{newest},\"advisories\":[\n{}\n]}}\n", lines.join(",\n"));
        std::fs::write(root.join(SNAPSHOT), text).context(SNAPSHOT)
    }

    pub(crate) fn len(&self) -> usize {
        self.advisories.len()
    }

    /// What is known about the packages, except the ignored ids. An ignored id that applies to none of them is a problem
    /// too: its exception is no longer needed.
    pub(crate) fn problems(&self, metadata: &Metadata, ignored: &[String]) -> Result<Vec<String>> {
        let mut problems = Vec::new();
        let mut used = Vec::new();
        for package in metadata.packages.iter().filter(|package| package.source.is_some()) {
            for advisory in self.advisories.iter().filter(|advisory| advisory.package == package.name) {
                if !advisory.applies_to(package)? {
                    continue;
                }
                if ignored.contains(&advisory.id) {
                    used.push(&advisory.id);
                } else {
                    problems.push(advisory.problem(package));
                }
            }
        }
        let unused = ignored.iter().filter(|id| !used.contains(id));
        problems.extend(
            unused.map(|id| format!("deny.toml: {id} applies to no dependency; remove it from `ignore`")),
        );
        Ok(problems)
    }
}

impl Advisory {
    fn applies_to(&self, package: &Package) -> Result<bool> {
        let version: Version = package.version.parse().with_context(|| package.name.clone())?;
        for text in self.patched.iter().chain(&self.unaffected) {
            let safe: VersionReq = text.parse().with_context(|| format!("{}: `{text}`", self.id))?;
            if safe.matches(&version) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn problem(&self, package: &Package) -> String {
        let Package { name, version, .. } = package;
        let patched = match self.patched.as_slice() {
            [] => "no version is patched".to_owned(),
            patched => format!("patched: {}", patched.join(" or ")),
        };
        format!("{name} {version}: {}, {}; {patched}; see `cargo tree -i {name}`", self.kind, self.id)
    }
}

impl From<Front> for Advisory {
    fn from(front: Front) -> Advisory {
        let Front { advisory: head, versions } = front;
        let kind = head.informational.unwrap_or_else(|| "vulnerability".to_owned());
        let Versions { patched, unaffected } = versions;
        Advisory { id: head.id, package: head.package, kind, patched, unaffected }
    }
}

/// The first block of an advisory: TOML between two fences.
fn front(text: &str) -> Result<Front> {
    let block = text.strip_prefix("```toml\n").and_then(|rest| rest.split_once("\n```"));
    let (block, _) = block.context("expected a block of TOML at the start")?;
    Ok(toml::from_str(block)?)
}

fn entries(folder: &Path) -> Result<Vec<std::path::PathBuf>> {
    let read = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    read.map(|entry| Ok(entry?.path())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUSTLS: &str = "```toml\n[advisory]\nid = \"RUSTSEC-2024-0336\"\npackage = \"rustls\"\ndate = \"2024-04-19\"\n\n\
                          [versions]\npatched = [\">= 0.23.5\", \">= 0.22.4, < 0.23.0\"]\nunaffected = [\"< 0.20.0\"]\n```\n# Text\n";

    fn checkout(files: &[(&str, &str)]) -> tempfile::TempDir {
        let database = tempfile::tempdir().expect("a folder");
        for (path, text) in files {
            let file = database.path().join("crates").join(path);
            std::fs::create_dir_all(file.parent().expect("a folder")).expect("created");
            std::fs::write(file, text).expect("written");
        }
        database
    }

    fn problems(version: &str, ignored: &[&str]) -> Vec<String> {
        let database = checkout(&[("rustls/RUSTSEC-2024-0336.md", RUSTLS)]);
        let advisories = Advisories::from_database(database.path()).expect("valid");
        let package = serde_json::json!({
            "id": "r", "name": "rustls", "version": version, "license": "MIT", "description": null, "source": "registry+x",
        });
        let metadata = serde_json::json!({ "packages": [package], "resolve": { "nodes": [] } });
        let metadata = super::super::parse(metadata.to_string().as_bytes()).expect("valid");
        let ignored: Vec<String> = ignored.iter().map(|&id| id.to_owned()).collect();
        advisories.problems(&metadata, &ignored).expect("valid versions")
    }

    #[test]
    fn a_version_that_is_neither_patched_nor_unaffected_is_a_problem() {
        for (version, expected) in
            [("0.23.4", 1), ("0.23.5", 0), ("0.22.3", 1), ("0.22.4", 0), ("0.21.0", 1), ("0.19.1", 0)]
        {
            assert_eq!(problems(version, &[]).len(), expected, "{version}");
        }
    }

    #[test]
    fn an_exception_hides_one_advisory_and_must_be_needed() {
        assert!(problems("0.23.4", &["RUSTSEC-2024-0336"]).is_empty());
        let unused = problems("0.23.5", &["RUSTSEC-2024-0336"]);
        assert!(unused[0].contains("applies to no dependency"), "{unused:?}");
    }

    #[test]
    fn a_snapshot_has_what_the_database_has_without_what_was_withdrawn() {
        let withdrawn =
            RUSTLS.replace("date = ", "withdrawn = \"2025-01-01\"\ndate = ").replace("0336", "0337");
        let database =
            checkout(&[("rustls/a.md", RUSTLS), ("rustls/b.md", &withdrawn), ("rustls/c.txt", "")]);
        let read = Advisories::from_database(database.path()).expect("valid");
        assert_eq!((read.len(), read.newest.as_str()), (1, "2024-04-19"));
        let root = tempfile::tempdir().expect("a folder");
        std::fs::create_dir_all(root.path().join(SNAPSHOT).parent().expect("a folder")).expect("created");
        read.write(root.path()).expect("written");
        assert_eq!(Advisories::read(root.path()).expect("valid").advisories, read.advisories);
    }

    #[test]
    fn a_folder_that_is_no_database_is_an_error() {
        let empty = checkout(&[]);
        assert!(Advisories::from_database(empty.path()).is_err());
        let broken = checkout(&[("rustls/a.md", "no block")]);
        let error = Advisories::from_database(broken.path()).expect_err("no block");
        assert!(format!("{error:#}").contains("a.md"), "{error:#}");
    }
}
