//! Snapshot files with the expected output.

use std::fs;
use std::path::Path;

/// Whether snapshot files are rewritten instead of compared.
pub(crate) fn is_blessing() -> bool {
    std::env::var_os("TOLLGATE_BLESS").is_some_and(|value| value == "1")
}

/// Returns the difference between `found` and the file. When blessing, writes the file first.
pub(crate) fn difference(file: &Path, found: &str) -> Option<String> {
    if is_blessing() {
        fs::create_dir_all(file.parent().expect("the file has a folder")).expect("create the folder");
        fs::write(file, found).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    }
    let expected = match fs::read_to_string(file) {
        Ok(expected) => expected,
        Err(error) => format!("{error}\n"),
    };
    let name = file.file_name().unwrap_or_default().display();
    (expected != found).then(|| format!("=== {name}\n--- expected\n{expected}--- found\n{found}"))
}
