//! The reader of bodies takes any bytes: the corpus of its fuzz target, cut anywhere and with any byte changed.

#[path = "../../fuzz/json.rs"]
mod json;

use std::fs;
use std::path::Path;

#[test]
fn the_corpus_of_bodies_holds_cut_anywhere_and_with_any_byte_changed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/json");
    let mut count = 0;
    for entry in fs::read_dir(folder).expect("there is a corpus") {
        let path = entry.expect("it can be listed").path();
        // The name is printed if the property fails.
        println!("{}", path.display());
        let bytes = fs::read(&path).expect("it can be read");
        json::body(&bytes);
        for place in 0..bytes.len() {
            json::body(&bytes[..place]);
            let mut changed = bytes.clone();
            for byte in [0, b'"', b'0', b'{', b'\\', b',', 0xc3, 0xff] {
                changed[place] = byte;
                json::body(&changed);
            }
        }
        count += 1;
    }
    assert!(count >= 20, "{count} files");
}
