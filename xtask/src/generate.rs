//! `cargo xtask gen`: files that are made from code, so that they cannot say something else than the code.

use anyhow::{Context, Result, bail};
use std::path::Path;

/// One file that is made from code.
struct Generated {
    /// Where it lies, from the root of the repository.
    path: String,
    contents: String,
}

/// The table: one row per generated file.
fn generators() -> Vec<Generated> {
    Vec::new()
}

/// Writes every generated file that is missing or stale.
pub(crate) fn write(root: &Path) -> Result<()> {
    write_all(root, &generators())
}

/// Fails when a generated file is missing or stale, naming all of them.
pub(crate) fn check(root: &Path) -> Result<()> {
    check_all(root, &generators())
}

fn write_all(root: &Path, generated: &[Generated]) -> Result<()> {
    let stale = stale(root, generated)?;
    for file in &stale {
        let path = root.join(&file.path);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        }
        std::fs::write(&path, &file.contents).with_context(|| format!("cannot write {}", file.path))?;
        println!("wrote {}", file.path);
    }
    println!("gen: {} of {} files were stale", stale.len(), generated.len());
    Ok(())
}

fn check_all(root: &Path, generated: &[Generated]) -> Result<()> {
    let stale: Vec<&str> = stale(root, generated)?.iter().map(|file| file.path.as_str()).collect();
    if !stale.is_empty() {
        bail!("stale:\n  {}\nhint: run `cargo xtask gen` and commit what it writes", stale.join("\n  "));
    }
    println!("gen: {} files are as the code says", generated.len());
    Ok(())
}

fn stale<'a>(root: &Path, generated: &'a [Generated]) -> Result<Vec<&'a Generated>> {
    let mut stale = Vec::new();
    for file in generated {
        match std::fs::read(root.join(&file.path)) {
            Ok(found) if found == file.contents.as_bytes() => {}
            Ok(_) => stale.push(file),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => stale.push(file),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", file.path)),
        }
    }
    Ok(stale)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn check_names_what_is_missing_or_stale_and_writing_heals_it() {
        let scratch = Scratch::new();
        scratch.write("docs/same.svg", "same");
        scratch.write("docs/stale.svg", "old");
        let generated = [("docs/same.svg", "same"), ("docs/stale.svg", "new"), ("docs/new/page.md", "page")]
            .map(|(path, contents)| Generated { path: path.to_owned(), contents: contents.to_owned() });

        let error = check_all(scratch.path(), &generated).expect_err("two files are not as they should be");
        let error = error.to_string();
        assert!(error.starts_with("stale:\n  docs/stale.svg\n  docs/new/page.md\n"), "{error}");
        assert_eq!(scratch.read("docs/stale.svg"), "old");

        write_all(scratch.path(), &generated).expect("the files can be written");
        check_all(scratch.path(), &generated).expect("nothing is stale");
        assert_eq!(scratch.read("docs/new/page.md"), "page");
    }
}
