//! Replays the corpora of the fuzz targets for messages and imports, truncated and with bytes changed.

use std::fs;
use std::path::Path;

use tollgate_server::fuzzing::{import, rls};

#[test]
fn the_corpus_of_messages_holds_truncated_and_changed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/rls");
    let mut count = 0;
    for entry in fs::read_dir(folder).expect("there is a corpus") {
        let path = entry.expect("it can be listed").path();
        // The name is printed if the property fails.
        println!("{}", path.display());
        let bytes = fs::read(&path).expect("it can be read");
        rls(&bytes);
        for offset in 0..bytes.len() {
            rls(&bytes[..offset]);
            let mut changed = bytes.clone();
            for byte in [0, 1, 0x0a, 0x12, b'a', 0x7f, 0x80, 0xff] {
                changed[offset] = byte;
                rls(&changed);
            }
        }
        count += 1;
    }
    assert!(count >= 30, "{count} files");
}

#[test]
fn the_corpus_of_imports_holds_truncated_and_changed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/import");
    let mut count = 0;
    for entry in fs::read_dir(folder).expect("there is a corpus") {
        let path = entry.expect("it can be listed").path();
        // The name is printed if the property fails.
        println!("{}", path.display());
        let bytes = fs::read(&path).expect("it can be read");
        import(&bytes);
        for offset in (0..bytes.len()).step_by(3) {
            import(&bytes[..offset]);
            let mut changed = bytes.clone();
            for byte in [b'*', b'\'', b'[', b'\n'] {
                changed[offset] = byte;
                import(&changed);
            }
        }
        count += 1;
    }
    assert!(count >= 10, "{count} files");
}
