//! File helpers of the tests.

use std::fs;
use std::path::{Path, PathBuf};

/// The folder of this crate.
pub(crate) const CRATE: &str = env!("CARGO_MANIFEST_DIR");

/// The files below a folder whose names end with `ending`, sorted.
pub(crate) fn files_below(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.expect("read the folder").path();
        if path.is_dir() {
            found.extend(files_below(&path, ending));
        } else if path.to_string_lossy().ends_with(ending) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The bytes of a file.
pub(crate) fn read(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
