//! The readers of rules files and of what Redis sends take any bytes: the corpus of their fuzz targets, good files with
//! something changed, noise.

mod common;

use std::path::Path;
use std::time::{Duration, Instant};

use common::files::{CRATE, files_below, read};
use common::mutation::{good_files, nearly_good};
use common::properties::{redis_reply, rules};
use proptest::prelude::*;

/// The most that any of the small files here may take to be read, told and used in every way.
const TIME_MAX: Duration = Duration::from_secs(5);

fn rules_in_time(bytes: &[u8]) {
    let started = Instant::now();
    rules(bytes);
    let took = started.elapsed();
    assert!(took < TIME_MAX, "{took:?} for {:?}", String::from_utf8_lossy(bytes));
}

#[test]
fn the_corpus_of_the_fuzz_target_holds() {
    let corpus = files_below(&Path::new(CRATE).join("fuzz/corpus/rules"), "");
    assert!(corpus.len() >= 10, "{} files", corpus.len());
    for path in corpus {
        // The name is printed if the property fails.
        println!("{}", path.display());
        rules_in_time(&read(&path));
    }
}

#[test]
fn the_corpus_of_redis_replies_holds_cut_anywhere_and_with_any_byte_changed() {
    let corpus = files_below(&Path::new(CRATE).join("fuzz/corpus/redis_reply"), "");
    assert!(corpus.len() >= 10, "{} files", corpus.len());
    for path in corpus {
        println!("{}", path.display());
        let bytes = read(&path);
        for place in 0..bytes.len() {
            redis_reply(&bytes[..place]);
            let mut changed = bytes.clone();
            for byte in [0, b'0', 0x7f, 0xff] {
                changed[place] = byte;
                redis_reply(&changed);
            }
        }
        redis_reply(&bytes);
    }
}

#[test]
fn good_and_broken_files_hold() {
    good_files().into_iter().for_each(|file| rules_in_time(file.as_bytes()));
    for path in files_below(&Path::new(CRATE).join("tests/broken"), ".yaml") {
        println!("{}", path.display());
        rules_in_time(&read(&path));
    }
}

/// A file may be cut anywhere while it is being written.
#[test]
fn every_beginning_of_a_good_file_holds() {
    for file in good_files() {
        (0..file.len()).step_by(7).for_each(|end| rules_in_time(&file.as_bytes()[..end]));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nearly_good_files_hold(file in nearly_good()) {
        rules_in_time(&file);
    }

    #[test]
    fn any_bytes_hold(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        rules_in_time(&bytes);
    }

    #[test]
    fn any_text_of_yaml_marks_holds(text in "[a-z0-9 \n\r\t:,.\\-?!&*#|>'\"%@`{}\\[\\]~<\\\\]{0,120}") {
        rules_in_time(text.as_bytes());
    }
}
