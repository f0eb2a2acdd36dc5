//! No dead files: every Rust file is compiled as part of some target, and no file is empty.

use crate::tidy::Problem;
use crate::tidy::rust::{Kind, Source};
use crate::tidy::tree::{File, Tree, folder, join};
use std::collections::BTreeSet;

pub(in crate::tidy) fn check(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in tree.files().filter(|file| file.is_ours()) {
        if file.text().is_some_and(|text| text.trim().is_empty()) {
            problems.push(Problem::new(&file.path, 1, "an empty file", "fill it or delete it"));
        }
    }
    let compiled = compiled(tree);
    for (path, _) in tree.texts(".rs").filter(|(path, _)| !compiled.contains(*path)) {
        let fix = "declare it with `mod` in its parent, or delete it";
        problems.push(Problem::new(path, 1, "no target compiles this file", fix));
    }
    problems
}

/// Every Rust file that can be reached from the root file of a target.
fn compiled(tree: &Tree) -> BTreeSet<String> {
    let mut compiled = BTreeSet::new();
    let mut open: Vec<(String, bool)> = roots(tree).into_iter().map(|root| (root, true)).collect();
    while let Some((path, is_root)) = open.pop() {
        let Some(text) = tree.file(&path).and_then(File::text) else { continue };
        if compiled.insert(path.clone()) {
            open.extend(children(&path, is_root, text).into_iter().map(|child| (child, false)));
        }
    }
    compiled
}

fn roots(tree: &Tree) -> Vec<String> {
    let mut roots = Vec::new();
    for (manifest, text) in tree.texts("Cargo.toml") {
        let package = folder(manifest);
        let named = text.lines().filter_map(|line| line.strip_prefix("path = \"")?.strip_suffix("\""));
        roots.extend(named.filter(|path| path.ends_with(".rs")).filter_map(|path| join(package, path)));
        let in_package = |file: &str| {
            let file =
                if package.is_empty() { Some(file) } else { file.strip_prefix(package)?.strip_prefix('/') };
            file.map(str::to_owned)
        };
        let found = tree.files().filter(|file| in_package(&file.path).is_some_and(|path| is_root(&path)));
        roots.extend(found.map(|file| file.path.clone()));
    }
    roots
}

/// Whether cargo takes this path in a package as the root of a target by default.
fn is_root(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    match parts.as_slice() {
        ["build.rs"] | ["src", "lib.rs" | "main.rs"] => true,
        ["src", "bin", rest @ ..] | ["tests" | "benches" | "examples", rest @ ..] => match rest {
            [file] => file.ends_with(".rs"),
            [_, file] => *file == "main.rs",
            _ => false,
        },
        _ => false,
    }
}

/// The files that the `mod name;` declarations of a file may mean; those that do not exist do no harm.
fn children(path: &str, is_root: bool, text: &str) -> Vec<String> {
    let own = path.rsplit('/').next().unwrap_or(path);
    let base = if is_root || own == "mod.rs" { folder(path) } else { path.trim_end_matches(".rs") };
    let source = Source::read(text);
    let mut children = Vec::new();
    // The inline modules around the current token, and where each ends.
    let mut inline: Vec<(&str, usize)> = Vec::new();
    for at in 0..source.tokens.len() {
        while inline.last().is_some_and(|(_, end)| *end <= at) {
            inline.pop();
        }
        let (Some(Kind::Ident("mod")), Some(Kind::Ident(name))) = (source.kind(at), source.kind(at + 1))
        else {
            continue;
        };
        let inside: Vec<&str> = inline.iter().map(|(name, _)| *name).collect();
        match source.kind(at + 2) {
            Some(Kind::Punct('{')) => inline.push((name, source.closing(at + 2))),
            Some(Kind::Punct(';')) => {
                let path = [inside.as_slice(), &[name]].concat().join("/");
                children.push(format!("{base}/{path}.rs"));
                children.push(format!("{base}/{path}/mod.rs"));
            }
            _ => {}
        }
    }
    for attribute in source.attributes() {
        let kinds: Vec<Kind<'_>> = attribute.tokens.iter().map(|token| token.kind).collect();
        if let [Kind::Ident("path"), Kind::Punct('='), Kind::Text(relative)] = kinds.as_slice() {
            children.extend(join(folder(path), relative));
        }
    }
    children
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::planted::found;

    #[test]
    fn a_file_that_no_target_compiles_is_found() {
        let files = [
            ("a/Cargo.toml", "[package]"),
            ("a/src/lib.rs", "mod used;\n// mod dead;\nconst A: &str = \"mod dead;\";"),
            ("a/src/used.rs", "mod inner;"),
            ("a/src/used/inner.rs", "//!"),
            ("a/src/inner.rs", "//!"),
            ("a/src/dead.rs", "mod below;"),
            ("a/src/dead/below.rs", "//!"),
            ("stray.rs", "//!"),
        ];
        let dead = ["a/src/dead.rs:1", "a/src/dead/below.rs:1", "a/src/inner.rs:1", "stray.rs:1"];
        assert_eq!(found(check, &files), dead);
    }

    #[test]
    fn every_way_to_be_compiled_is_known() {
        let files = [
            (
                "a/Cargo.toml",
                "[[bin]]\nname = \"a\"\npath = \"other/start.rs\"\n[dependencies]\nb = { path = \"../b\" }",
            ),
            ("a/build.rs", "//!"),
            ("a/other/start.rs", "mod near;"),
            ("a/other/near.rs", "//!"),
            (
                "a/src/main.rs",
                "#[cfg(test)]\nmod old;\nmod outer { mod deep; }\n#[path = \"odd/name.rs\"]\nmod odd;",
            ),
            ("a/src/old/mod.rs", "mod child;"),
            ("a/src/old/child.rs", "//!"),
            ("a/src/outer/deep.rs", "//!"),
            ("a/src/odd/name.rs", "//!"),
            ("a/src/bin/tool.rs", "//!"),
            ("a/src/bin/big/main.rs", "//!"),
            ("a/tests/one.rs", "mod common;"),
            ("a/tests/common/mod.rs", "//!"),
            ("a/benches/one.rs", "//!"),
        ];
        assert_eq!(found(check, &files), [""; 0]);
    }

    #[test]
    fn an_empty_file_is_found() {
        assert_eq!(found(check, &[("a.md", "\n \n"), ("b/corpus/empty", "")]), ["a.md:1"]);
    }
}
