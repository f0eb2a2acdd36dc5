//! The parsers of rules files and Redis replies accept any bytes: the fuzz corpus, mutated files, random bytes.

mod common;

use std::path::Path;
use std::time::{Duration, Instant};

use common::files::{CRATE, files_below, read};
use common::mutation::{mutated_file, valid_files};
use common::properties::{redis_reply, rules};
use proptest::prelude::*;

/// Maximum time to load, render and use one of the small files here.
const TIME_MAX: Duration = Duration::from_secs(5);

fn rules_in_time(bytes: &[u8]) {
    let started = Instant::now();
    rules(bytes);
    let took = started.elapsed();
    assert!(took < TIME_MAX, "{took:?} for {:?}", String::from_utf8_lossy(bytes));
}

#[test]
fn the_fuzz_corpus_of_rules_passes() {
    let corpus = files_below(&Path::new(CRATE).join("fuzz/corpus/rules"), "");
    assert!(corpus.len() >= 10, "{} files", corpus.len());
    for path in corpus {
        // Printed only if the test fails.
        println!("{}", path.display());
        rules_in_time(&read(&path));
    }
}

#[test]
fn the_fuzz_corpus_of_redis_replies_passes_truncated_and_with_changed_bytes() {
    let corpus = files_below(&Path::new(CRATE).join("fuzz/corpus/redis_reply"), "");
    assert!(corpus.len() >= 10, "{} files", corpus.len());
    for path in corpus {
        println!("{}", path.display());
        let bytes = read(&path);
        for at in 0..bytes.len() {
            redis_reply(&bytes[..at]);
            let mut changed = bytes.clone();
            for byte in [0, b'0', 0x7f, 0xff] {
                changed[at] = byte;
                redis_reply(&changed);
            }
        }
        redis_reply(&bytes);
    }
}

#[test]
fn valid_and_broken_files_pass() {
    valid_files().into_iter().for_each(|file| rules_in_time(file.as_bytes()));
    for path in files_below(&Path::new(CRATE).join("tests/broken"), ".yaml") {
        println!("{}", path.display());
        rules_in_time(&read(&path));
    }
}

/// A file may be loaded while it is being written.
#[test]
fn every_prefix_of_a_valid_file_passes() {
    for file in valid_files() {
        (0..file.len()).step_by(7).for_each(|end| rules_in_time(&file.as_bytes()[..end]));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn mutated_files_pass(file in mutated_file()) {
        rules_in_time(&file);
    }

    #[test]
    fn random_bytes_pass(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        rules_in_time(&bytes);
    }

    #[test]
    fn random_yaml_syntax_passes(text in "[a-z0-9 \n\r\t:,.\\-?!&*#|>'\"%@`{}\\[\\]~<\\\\]{0,120}") {
        rules_in_time(text.as_bytes());
    }
}
