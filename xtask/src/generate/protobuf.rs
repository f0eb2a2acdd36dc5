//! Generates Rust for the messages of Envoy's rate limit service from our definitions of them.

use std::path::Path;

use anyhow::{Context, Result};
use prost::Message;

/// The folder of the definitions and of the generated code.
const DEFINITIONS: &str = "crates/server/proto";
const SERVICE: &str = "service.proto";
/// The module that contains all packages.
const MODULES: &str = "mod.rs";
/// The file descriptors for server reflection.
const DESCRIPTORS: &str = "descriptors.rs";

/// Path and contents of every file.
pub(crate) fn all() -> Result<Vec<(String, String)>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(DEFINITIONS);
    let mut compiler = protox::Compiler::new([&root])?;
    compiler.include_imports(true).include_source_info(false);
    let descriptors = compiler.open_file(SERVICE)?.file_descriptor_set();
    let folder = tempfile::tempdir().context("cannot create a temporary folder")?;
    tonic_prost_build::configure()
        .build_server(false)
        .build_transport(false)
        .disable_comments(["."])
        .emit_rerun_if_changed(false)
        .include_file(MODULES)
        .out_dir(folder.path())
        .compile_fds(descriptors.clone())
        .context("cannot generate Rust from the definitions")?;
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder.path())? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).context("a file without a name")?;
        files.push((format!("{DEFINITIONS}/generated/{name}"), std::fs::read_to_string(&path)?));
    }
    files.push((format!("{DEFINITIONS}/generated/{DESCRIPTORS}"), bytes(&descriptors.encode_to_vec())));
    files.sort();
    Ok(files)
}

/// Formats bytes as a literal, so that the committed file is text.
fn bytes(bytes: &[u8]) -> String {
    let mut text = String::from("// This file is @generated.\nb\"");
    for line in bytes.chunks(80) {
        // A space at the start of a line would be read as indentation.
        text.push_str(&line.escape_ascii().to_string().replace(' ', "\\x20"));
        text.push_str("\\\n");
    }
    text + "\"\n"
}
