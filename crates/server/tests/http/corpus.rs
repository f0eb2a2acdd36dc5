//! Replays the corpus of the fuzz target for bodies, truncated at every byte and with bytes changed.

use std::fs;
use std::path::Path;

use tollgate_server::fuzzing::json;

#[test]
fn the_corpus_of_bodies_holds_truncated_and_changed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/json");
    let mut count = 0;
    for entry in fs::read_dir(folder).expect("there is a corpus") {
        let path = entry.expect("it can be listed").path();
        // The name is printed if the property fails.
        println!("{}", path.display());
        let bytes = fs::read(&path).expect("it can be read");
        json(&bytes);
        for offset in 0..bytes.len() {
            json(&bytes[..offset]);
            let mut changed = bytes.clone();
            for byte in [0, b'"', b'0', b'{', b'\\', b',', 0xc3, 0xff] {
                changed[offset] = byte;
                json(&changed);
            }
        }
        count += 1;
    }
    assert!(count >= 20, "{count} files");
}
