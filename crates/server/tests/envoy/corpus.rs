//! The reader of messages takes any bytes: the corpus of its fuzz target, cut anywhere and with any byte changed.

#[path = "../../fuzz/rls.rs"]
mod rls;

use std::fs;
use std::path::Path;

#[test]
fn the_corpus_of_messages_holds_cut_anywhere_and_with_any_byte_changed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/rls");
    let mut count = 0;
    for entry in fs::read_dir(folder).expect("there is a corpus") {
        let path = entry.expect("it can be listed").path();
        // The name is printed if the property fails.
        println!("{}", path.display());
        let bytes = fs::read(&path).expect("it can be read");
        rls::message(&bytes);
        for place in 0..bytes.len() {
            rls::message(&bytes[..place]);
            let mut changed = bytes.clone();
            for byte in [0, 1, 0x0a, 0x12, b'a', 0x7f, 0x80, 0xff] {
                changed[place] = byte;
                rls::message(&changed);
            }
        }
        count += 1;
    }
    assert!(count >= 30, "{count} files");
}
