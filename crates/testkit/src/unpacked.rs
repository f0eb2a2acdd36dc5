//! Where packages of others are unpacked.

use std::path::{Path, PathBuf};

/// The folder of this name in the target directory. A relative target directory is one below the root, wherever the
/// process runs, so that setup and tests mean the same place.
pub(crate) fn unpacked(name: &str) -> PathBuf {
    let root =
        Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the crate lies two folders down");
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    root.join(target).join(name)
}
