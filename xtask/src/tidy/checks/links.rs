//! Every link has an existing target, and every page and picture of the docs can be reached by links.

use crate::tidy::Problem;
use crate::tidy::markdown::{anchors, links};
use crate::tidy::tree::{File, Tree, folder, join};
use std::collections::BTreeSet;

/// A reader starts here.
const STARTS: &[&str] = &["README.md", "docs/README.md"];
const PICTURES: &[&str] = &[".svg", ".png", ".jpg", ".gif", ".webp"];

/// Where a relative link leads.
enum Target {
    File(String),
    Folder(String),
    Nowhere,
}

pub(in crate::tidy) fn check(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut linked: BTreeSet<String> = BTreeSet::new();
    for (path, text) in tree.texts(".md") {
        for link in links(text).into_iter().filter(|link| is_relative(link.target)) {
            let (file, anchor) = link.target.split_once('#').unwrap_or((link.target, ""));
            let reached = match resolve(tree, path, file) {
                Target::File(reached) => reached,
                Target::Folder(_) => continue,
                Target::Nowhere => {
                    let what = format!("the link to {} leads nowhere", link.target);
                    let fix = "name a file of this repository, seen from this page";
                    problems.push(Problem::new(path, link.line, what, fix));
                    continue;
                }
            };
            if !anchor.is_empty() && reached.ends_with(".md") {
                let offered = tree.file(&reached).and_then(File::text).map(anchors).unwrap_or_default();
                if !offered.iter().any(|offer| offer == anchor) {
                    let what = format!("{reached} has no heading #{anchor}");
                    let fix = format!("use one of: {}", offered.join(", "));
                    problems.push(Problem::new(path, link.line, what, fix));
                }
            }
            linked.insert(reached);
        }
    }
    let reachable = reachable(tree);
    for file in tree.files().filter(|file| file.is_ours() && file.path.starts_with("docs/")) {
        let path = &file.path;
        if path.ends_with(".md") && !reachable.contains(path) {
            let what = format!("no way leads here from {}", STARTS.join(" or "));
            let fix = "link it from a page that can be reached, or delete it";
            problems.push(Problem::new(path, 1, what, fix));
        }
        if PICTURES.iter().any(|ending| path.ends_with(ending)) && !linked.contains(path) {
            problems.push(Problem::new(path, 1, "no page shows this picture", "show it, or delete it"));
        }
    }
    problems
}

fn is_relative(target: &str) -> bool {
    !target.contains("://") && !target.starts_with("mailto:")
}

fn resolve(tree: &Tree, from: &str, file: &str) -> Target {
    if file.is_empty() {
        return Target::File(from.to_owned());
    }
    match join(folder(from), file) {
        Some(path) if !file.starts_with('/') && tree.file(&path).is_some() => Target::File(path),
        Some(path) if !file.starts_with('/') && tree.has_folder(&path) => Target::Folder(path),
        _ => Target::Nowhere,
    }
}

/// The pages that a reader comes to by following links.
fn reachable(tree: &Tree) -> BTreeSet<String> {
    let mut reachable = BTreeSet::new();
    let mut open: Vec<String> = STARTS.iter().map(|start| (*start).to_owned()).collect();
    while let Some(path) = open.pop() {
        let Some(text) = tree.file(&path).filter(|_| path.ends_with(".md")).and_then(File::text) else {
            continue;
        };
        if !reachable.insert(path.clone()) {
            continue;
        }
        for link in links(text).into_iter().filter(|link| is_relative(link.target)) {
            let file = link.target.split('#').next().unwrap_or(link.target);
            match resolve(tree, &path, file) {
                Target::File(reached) => open.push(reached),
                Target::Folder(reached) => open.extend(join(&reached, "README.md")),
                Target::Nowhere => {}
            }
        }
    }
    reachable
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::planted::{found, lines};

    #[test]
    fn a_tree_in_which_everything_is_linked_passes() {
        let files = [
            (
                "README.md",
                "[docs](docs/README.md) [me](#here)\n# Here\n[out](https://example.org/x) [m](mailto:a@b)",
            ),
            ("docs/README.md", "[a](a.md#part-one) [folder](deep/) [code](../src/lib.rs#L3)"),
            ("docs/a.md", "## Part one\n![p](p.svg)\n<img src=\"q.png\">"),
            ("docs/p.svg", "<svg/>"),
            ("docs/q.png", "png"),
            ("docs/deep/README.md", "[up](../README.md)"),
            ("src/lib.rs", "//!"),
        ];
        assert_eq!(found(check, &files), [""; 0]);
    }

    #[test]
    fn a_link_that_leads_nowhere_is_found() {
        for target in ["gone.md", "../../x", "/README.md", "README.md#gone", "#gone", "gone/", "gone.svg"] {
            assert_eq!(lines(check, "README.md", &format!("# A\n\n[a]({target})\n")), [3], "{target}");
        }
    }

    #[test]
    fn pages_and_pictures_that_cannot_be_reached_are_found() {
        let files = [
            ("README.md", "`docs/a.md`"),
            ("docs/README.md", "nothing"),
            ("docs/alone.md", "[self](alone.md)"),
            ("docs/island-a.md", "[b](island-b.md)"),
            ("docs/island-b.md", "[a](island-a.md)"),
            ("docs/p.svg", "<svg/>"),
            ("CHANGELOG.md", "not below docs"),
        ];
        let expected = ["docs/alone.md:1", "docs/island-a.md:1", "docs/island-b.md:1", "docs/p.svg:1"];
        assert_eq!(found(check, &files), expected);
    }
}
