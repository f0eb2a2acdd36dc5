//! Files that hold what the code is expected to give.

use std::fs;
use std::path::Path;

/// Whether expected files are to be written instead of compared.
pub(crate) fn is_blessing() -> bool {
    std::env::var_os("TOLLGATE_BLESS").is_some_and(|value| value == "1")
}

/// How `found` differs from the file, which is written first when blessing.
pub(crate) fn difference(file: &Path, found: &str) -> Option<String> {
    if is_blessing() {
        fs::create_dir_all(file.parent().expect("a file lies in a folder")).expect("the folder can be made");
        fs::write(file, found).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    }
    let expected = match fs::read_to_string(file) {
        Ok(expected) => expected,
        Err(error) => format!("{error}\n"),
    };
    let name = file.file_name().unwrap_or_default().display();
    (expected != found).then(|| format!("=== {name}\n--- expected\n{expected}--- found\n{found}"))
}
