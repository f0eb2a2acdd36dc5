//! The files that git tracks, or would track once they are added.

use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Folders with generated or third-party files, or with data that is wrong on purpose.
const FOREIGN: &[&str] = &["generated", "vendor", "corpus"];

pub(super) struct Tree {
    files: BTreeMap<String, File>,
}

pub(super) struct File {
    /// From the root, with `/` on every system.
    pub(super) path: String,
    contents: Contents,
}

enum Contents {
    Text(String),
    Binary,
}

impl Tree {
    pub(super) fn load(root: &Path) -> Result<Self> {
        let output = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(root)
            .output()
            .context("cannot run git")?;
        if !output.status.success() {
            bail!("git cannot list the files: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        let names = String::from_utf8(output.stdout).context("a file name is not UTF-8")?;
        let mut files = BTreeMap::new();
        for name in names.split_terminator('\0') {
            let bytes = match std::fs::read(root.join(name)) {
                Ok(bytes) => bytes,
                // Tracked, and deleted in the working tree: it is not in the tree that is checked.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error).with_context(|| format!("cannot read {name}")),
            };
            let contents = match String::from_utf8(bytes) {
                Ok(text) if !text.contains('\0') => Contents::Text(text),
                Ok(_) | Err(_) => Contents::Binary,
            };
            files.insert(name.to_owned(), File { path: name.to_owned(), contents });
        }
        Ok(Self { files })
    }

    #[cfg(test)]
    pub(super) fn of(files: &[(&str, &str)]) -> Self {
        let file = |path: &str, text: &str| File {
            path: path.to_owned(),
            contents: Contents::Text(text.to_owned()),
        };
        Self { files: files.iter().map(|(path, text)| ((*path).to_owned(), file(path, text))).collect() }
    }

    pub(super) fn files(&self) -> impl ExactSizeIterator<Item = &File> {
        self.files.values()
    }

    pub(super) fn file(&self, path: &str) -> Option<&File> {
        self.files.get(path)
    }

    pub(super) fn has_folder(&self, path: &str) -> bool {
        path.is_empty()
            || self.files.keys().any(|file| file.strip_prefix(path).is_some_and(|rest| rest.starts_with('/')))
    }

    /// Our text files whose path ends with `ending`, with their text.
    pub(super) fn texts(&self, ending: &str) -> impl Iterator<Item = (&str, &str)> {
        self.files()
            .filter(move |file| file.is_ours() && file.path.ends_with(ending))
            .filter_map(|file| Some((file.path.as_str(), file.text()?)))
    }
}

impl File {
    /// `None` for a binary file.
    pub(super) fn text(&self) -> Option<&str> {
        match &self.contents {
            Contents::Text(text) => Some(text),
            Contents::Binary => None,
        }
    }

    pub(super) fn is_ours(&self) -> bool {
        !self.path.split('/').any(|part| FOREIGN.contains(&part))
    }
}

/// The folder of a file, empty for the root.
pub(super) fn folder(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// A path as seen from a folder, with `.` and `..` resolved. `None` if it leaves the tree.
pub(super) fn join(folder: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            _ => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    fn git(root: &Path, arguments: &[&str]) {
        let status = Command::new("git").args(arguments).current_dir(root).status().expect("git runs");
        assert!(status.success(), "git {arguments:?}");
    }

    #[test]
    fn tracked_and_new_files_are_loaded_but_not_ignored_or_deleted_ones() {
        let scratch = Scratch::new();
        for name in [".gitignore", "tracked", "deleted", "new", "sub/new", "ignored"] {
            scratch.write(name, "ignored\n");
        }
        scratch.write("binary", "a\0b");
        git(scratch.path(), &["init", "--quiet"]);
        git(scratch.path(), &["add", ".gitignore", "tracked", "deleted"]);
        std::fs::remove_file(scratch.path().join("deleted")).expect("the file is there");

        let tree = Tree::load(scratch.path()).expect("the tree can be read");
        let paths: Vec<&str> = tree.files().map(|file| file.path.as_str()).collect();
        assert_eq!(paths, [".gitignore", "binary", "new", "sub/new", "tracked"]);
        assert_eq!(tree.file("new").and_then(File::text), Some("ignored\n"));
        assert_eq!(tree.file("binary").and_then(File::text), None);
    }

    #[test]
    fn a_folder_that_git_does_not_know_is_an_error() {
        let scratch = Scratch::new();
        scratch.write(".git", "gitdir: nowhere");
        assert!(Tree::load(scratch.path()).is_err());
    }

    #[test]
    fn paths_resolve_inside_the_tree_only() {
        assert_eq!(join("docs/a", "../b/./c.md").as_deref(), Some("docs/b/c.md"));
        assert_eq!(join("", "README.md").as_deref(), Some("README.md"));
        assert_eq!(join("docs", "..").as_deref(), Some(""));
        assert_eq!(join("docs", "../../x"), None);
    }

    #[test]
    fn vendored_files_are_not_ours() {
        let tree = Tree::of(&[
            ("a/vendor/x.js", ""),
            ("a/generated/x.rs", ""),
            ("fuzz/corpus/x", ""),
            ("a/vendors.rs", ""),
        ]);
        let ours: Vec<&str> =
            tree.files().filter(|file| file.is_ours()).map(|file| file.path.as_str()).collect();
        assert_eq!(ours, ["a/vendors.rs"]);
    }
}
