//! Where third-party packages are unpacked.

use std::path::{Path, PathBuf};

/// Returns the folder of this name in the target directory. A relative target directory is below the workspace root, so
/// that setup and tests use the same folder.
pub(crate) fn unpacked(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("the crate is two folders below the root");
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    root.join(target).join(name)
}
