//! `cargo xtask gen`: writes the files that are generated from code, and checks that they are up to date.

mod deploy;
mod measure;
mod outage;
mod pages;
mod pictures;
mod protobuf;
mod reference;

use anyhow::{Context, Result, anyhow, bail};
use measure::Measurements;
use std::path::Path;

/// Folder of the pages and pictures that explain the algorithms.
const CONCEPTS: &str = "docs/concepts";
/// Folder of the pages for operators.
const OPERATING: &str = "docs/operating";
/// Folder of the reference pages.
const REFERENCE: &str = "docs/reference";

/// One file that is generated completely or in part.
struct Generated {
    /// Path relative to the root of the repository.
    path: String,
    contents: Contents,
}

enum Contents {
    Whole(String),
    /// The page is written by hand; only these sections are generated.
    Sections(Vec<Section>),
}

/// A part of a page, between the lines `<!-- generated: name -->` and `<!-- end -->`.
pub(crate) struct Section {
    pub(crate) name: &'static str,
    pub(crate) text: String,
}

/// Generates every file in memory.
fn generate_all(root: &Path) -> Result<Vec<Generated>> {
    let measurements = Measurements::take()?;
    let mut files: Vec<Generated> = Vec::new();
    for (name, svg) in pictures::all(&measurements)? {
        let path = format!("{CONCEPTS}/pictures/{name}");
        files.push(Generated { path, contents: Contents::Whole(svg) });
    }
    for (page, section) in pages::sections(&measurements)? {
        let path = format!("{CONCEPTS}/{page}");
        match files.last_mut() {
            Some(Generated { path: last, contents: Contents::Sections(sections) }) if *last == path => {
                sections.push(section);
            }
            _ => files.push(Generated { path, contents: Contents::Sections(vec![section]) }),
        }
    }
    let runs = outage::runs()?;
    let (path, svg) = (format!("{OPERATING}/pictures/store-away.svg"), pictures::store_away(&runs));
    files.push(Generated { path, contents: Contents::Whole(svg) });
    let section = Section { name: "run", text: outage::table(&runs) };
    let path = format!("{OPERATING}/store-away.md");
    files.push(Generated { path, contents: Contents::Sections(vec![section]) });
    for (name, text) in reference::all() {
        files.push(Generated { path: format!("{REFERENCE}/{name}"), contents: Contents::Whole(text) });
    }
    for (path, text) in protobuf::all()?.into_iter().chain(deploy::all(root)?) {
        files.push(Generated { path, contents: Contents::Whole(text) });
    }
    Ok(files)
}

/// Writes every generated file that is missing or stale.
pub(crate) fn write(root: &Path) -> Result<()> {
    write_all(root, &generate_all(root)?)
}

/// Fails if a generated file is missing or stale; the error lists all of them.
pub(crate) fn check(root: &Path) -> Result<()> {
    check_all(root, &generate_all(root)?)
}

fn write_all(root: &Path, generated: &[Generated]) -> Result<()> {
    let stale = stale(root, generated)?;
    for file in &stale {
        let path = root.join(file.path);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        }
        std::fs::write(&path, &file.expected).with_context(|| format!("cannot write {}", file.path))?;
        println!("wrote {}", file.path);
    }
    println!("gen: {} of {} files were stale", stale.len(), generated.len());
    Ok(())
}

fn check_all(root: &Path, generated: &[Generated]) -> Result<()> {
    let stale: Vec<&str> = stale(root, generated)?.iter().map(|file| file.path).collect();
    if !stale.is_empty() {
        bail!("stale:\n  {}\nhint: run `cargo xtask gen` and commit what it writes", stale.join("\n  "));
    }
    println!("gen: {} files are up to date", generated.len());
    Ok(())
}

/// A file that is missing or differs from the generated text.
struct Stale<'a> {
    path: &'a str,
    expected: String,
}

fn stale<'a>(root: &Path, generated: &'a [Generated]) -> Result<Vec<Stale<'a>>> {
    let mut stale = Vec::new();
    for file in generated {
        let found = match std::fs::read_to_string(root.join(&file.path)) {
            Ok(found) => Some(found),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", file.path)),
        };
        let expected = match (&file.contents, &found) {
            (Contents::Whole(expected), _) => expected.clone(),
            (Contents::Sections(_), None) => {
                bail!("{}: missing page; it is written by hand", file.path)
            }
            (Contents::Sections(sections), Some(page)) => {
                with_sections(page, sections).with_context(|| file.path.clone())?
            }
        };
        if found.as_ref() != Some(&expected) {
            stale.push(Stale { path: &file.path, expected });
        }
    }
    Ok(stale)
}

/// Returns the page with the text of these sections replaced.
pub(crate) fn with_sections(page: &str, sections: &[Section]) -> Result<String> {
    let mut page = page.to_owned();
    for Section { name, text } in sections {
        let opening = format!("<!-- generated: {name} -->\n");
        let missing = || anyhow!("no line {:?} followed by a line \"<!-- end -->\"", opening.trim_end());
        let start = page.find(&opening).ok_or_else(missing)? + opening.len();
        let len = page[start..].find("<!-- end -->").ok_or_else(missing)?;
        page.replace_range(start..start + len, &format!("{text}\n"));
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn check_lists_missing_and_stale_files_and_write_fixes_them() {
        let scratch = Scratch::new();
        scratch.write("docs/same.svg", "same");
        scratch.write("docs/stale.svg", "old");
        let generated = [("docs/same.svg", "same"), ("docs/stale.svg", "new"), ("docs/new/page.md", "page")]
            .map(|(path, text)| Generated {
                path: path.to_owned(),
                contents: Contents::Whole(text.to_owned()),
            });

        let error = check_all(scratch.path(), &generated).expect_err("two files are stale");
        let error = error.to_string();
        assert!(error.starts_with("stale:\n  docs/stale.svg\n  docs/new/page.md\n"), "{error}");
        assert_eq!(scratch.read("docs/stale.svg"), "old");

        write_all(scratch.path(), &generated).expect("the files can be written");
        check_all(scratch.path(), &generated).expect("nothing is stale");
        assert_eq!(scratch.read("docs/new/page.md"), "page");
    }

    #[test]
    fn with_sections_replaces_the_section_and_nothing_else() {
        let sections = |text: &str| [Section { name: "figures", text: text.to_owned() }];
        let page = "# A\n<!-- generated: figures -->\nold\nolder\n<!-- end -->\nB\n<!-- end -->\n";
        let new = "# A\n<!-- generated: figures -->\nnew\n<!-- end -->\nB\n<!-- end -->\n";
        assert_eq!(with_sections(page, &sections("new")).expect("the page has the section"), new);
        assert_eq!(with_sections(new, &sections("new")).expect("the page has the section"), new);
        for page in ["# A\n", "<!-- generated: figures -->\nnew\n", "<!-- end -->\n"] {
            with_sections(page, &sections("new")).expect_err("the page has no such section");
        }
    }

    #[test]
    fn generated_files_are_deterministic() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let texts = || -> Vec<String> {
            let generated = generate_all(&root).expect("every file can be generated");
            let text = |file: Generated| match file.contents {
                Contents::Whole(text) => vec![text],
                Contents::Sections(sections) => sections.into_iter().map(|section| section.text).collect(),
            };
            generated.into_iter().flat_map(text).collect()
        };
        assert_eq!(texts(), texts());
    }
}
