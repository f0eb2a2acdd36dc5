//! Every property that the fuzz targets check, on their corpus and on random bytes.

#[allow(unreachable_pub, reason = "the fuzz targets use the same file as a library")]
mod properties;

use std::fs;
use std::path::Path;

use properties::PROPERTIES;
use proptest::prelude::*;

#[test]
fn every_property_holds_on_the_corpus_of_its_fuzz_target() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    for (name, property) in PROPERTIES {
        let files: Vec<_> =
            fs::read_dir(corpus.join(name)).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(files.len() >= 5, "{name} has a corpus");
        for file in files {
            // Printed only if the property fails.
            println!("{}", file.display());
            property(&fs::read(&file).unwrap());
        }
    }
}

#[test]
fn every_fuzz_target_has_a_property() {
    let manifest = include_str!("../../fuzz/Cargo.toml");
    let targets: Vec<_> =
        manifest.lines().filter(|line| line.starts_with("path = \"fuzz_targets/")).collect();
    let expected = PROPERTIES.map(|(name, _)| format!("path = \"fuzz_targets/{name}.rs\""));
    assert_eq!(targets, expected);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 5_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_property_holds_on_random_input(bytes in prop::collection::vec(any::<u8>(), 0..120), text in "[0-9a-f:./%\\[\\]\",;=\\\\ fortg{}\n]{0,60}") {
        for (_, property) in PROPERTIES {
            property(&bytes);
            property(text.as_bytes());
        }
    }
}
