//! `cargo xtask sbom`: the components of the binary `tollgate` as CycloneDX 1.5.

use crate::dependencies::{self, Metadata, Package};
use anyhow::{Context, Result};
use serde_json::{Map, Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};

/// The package of the binary.
const BINARY: &str = "tollgate-server";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// File to write; standard output without it.
    #[arg(long)]
    output: Option<PathBuf>,
}

pub(crate) fn run(root: &Path, options: &Options) -> Result<()> {
    let document = document(&dependencies::resolve(root)?)?;
    let text = format!("{}\n", serde_json::to_string_pretty(&document)?);
    match &options.output {
        None => std::io::stdout().write_all(text.as_bytes()).context("cannot write to standard output")?,
        Some(path) => {
            std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?
        }
    }
    Ok(())
}

/// The same tree gives the same document: it has neither a time nor a serial number.
fn document(metadata: &Metadata) -> Result<Value> {
    let shipped = metadata.shipped_with(BINARY)?;
    let package = |id: &str| metadata.package(id).with_context(|| format!("{id} is not resolved"));
    let (mut main, mut components, mut dependencies) = (None, Vec::new(), Vec::new());
    for (&id, below) in &shipped {
        let found = package(id)?;
        if found.name == BINARY && found.source.is_none() {
            main = Some(component(found, "application"));
        } else {
            components.push(component(found, "library"));
        }
        let below = below.iter().map(|id| Ok(reference(package(id)?))).collect::<Result<Vec<_>>>()?;
        dependencies.push(json!({ "ref": reference(found), "dependsOn": below }));
    }
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": main },
        "components": components,
        "dependencies": dependencies,
    }))
}

fn component(package: &Package, kind: &str) -> Value {
    let mut component = Map::new();
    component.insert("type".to_owned(), kind.into());
    component.insert("bom-ref".to_owned(), reference(package).into());
    component.insert("name".to_owned(), package.name.as_str().into());
    component.insert("version".to_owned(), package.version.as_str().into());
    component.insert("purl".to_owned(), reference(package).into());
    if let Some(description) = &package.description {
        component.insert("description".to_owned(), description.trim().into());
    }
    if let Some(license) = &package.license {
        // Old manifests separate alternatives with a slash.
        let expression = license.replace(" / ", " OR ").replace('/', " OR ");
        component.insert("licenses".to_owned(), json!([{ "expression": expression }]));
    }
    component.into()
}

/// The package URL of a crate.
fn reference(package: &Package) -> String {
    format!("pkg:cargo/{}@{}", package.name, package.version.replace('+', "%2B"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use boon::{Compiler, Schemas};
    use std::collections::HashSet;
    use tollgate_testkit::tools::Tool;

    fn of_the_tree() -> Value {
        let root =
            Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is one folder below the root");
        document(&dependencies::resolve(root).expect("cargo metadata works")).expect("a document")
    }

    /// The schemas are files of the Python package of CycloneDX.
    #[test]
    fn the_document_is_valid_cyclonedx() {
        let folder = Tool::CycloneDx.folder().join("cyclonedx/schema/_res");
        let mut compiler = Compiler::new();
        for name in ["bom-1.5", "spdx", "jsf-0.82"] {
            let name = format!("{name}.SNAPSHOT.schema.json");
            let text = std::fs::read_to_string(folder.join(&name)).expect("`cargo xtask setup` installs it");
            let schema: Value = serde_json::from_str(&text).expect("JSON");
            compiler.add_resource(&format!("http://cyclonedx.org/schema/{name}"), schema).expect("a schema");
        }
        let mut schemas = Schemas::new();
        let schema =
            compiler.compile("http://cyclonedx.org/schema/bom-1.5.SNAPSHOT.schema.json", &mut schemas);
        let schema = schema.unwrap_or_else(|error| panic!("{error:#}"));
        let mut document = of_the_tree();
        schemas.validate(&document, schema).unwrap_or_else(|error| panic!("{error:#}"));
        document["components"][0]["type"] = "crate".into();
        assert!(schemas.validate(&document, schema).is_err(), "the schema is compared");
    }

    #[test]
    fn every_shipped_crate_is_listed_once_and_no_crate_of_tests() {
        let document = of_the_tree();
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let main = text(&document["metadata"]["component"]["bom-ref"]);
        let components = document["components"].as_array().expect("a list");
        let mut known: HashSet<String> = components.iter().map(|each| text(&each["bom-ref"])).collect();
        assert_eq!(known.len(), components.len());
        assert!(known.insert(main));
        let names: HashSet<String> = components.iter().map(|each| text(&each["name"])).collect();
        for shipped in ["tollgate", "tollgate-core", "tonic", "hyper", "rustls", "cel"] {
            assert!(names.contains(shipped), "{shipped}");
        }
        for test_only in ["proptest", "tollgate-testkit", "boon", "xtask"] {
            assert!(!names.contains(test_only), "{test_only}");
        }
        for dependency in document["dependencies"].as_array().expect("a list") {
            let below = dependency["dependsOn"].as_array().expect("a list");
            assert!(
                below.iter().chain([&dependency["ref"]]).all(|each| known.contains(&text(each))),
                "{dependency}"
            );
        }
    }
}
