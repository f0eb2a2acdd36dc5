//! Messages for invalid rules files: every `.yaml` file below `broken` has its expected output in a `.txt` file.
//!
//! `TOLLGATE_BLESS=1 cargo test -p tollgate --test broken` rewrites the `.txt` files. Review them before you commit them.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use common::blessing::{difference, is_blessing};
use common::files::{CRATE, files_below, read};
use tollgate::rules::load;
use tollgate_document::{Colour, Problems, Source};

/// Maximum time for any file. The margin is wide: the test must only detect quadratic time.
const TIME_MAX: Duration = Duration::from_secs(30);

/// Text files with a mistake, and below `corpus` files with invalid bytes.
fn broken_files() -> Vec<PathBuf> {
    files_below(&Path::new(CRATE).join("tests/broken"), ".yaml")
}

/// All problems of a file; `None` if it was accepted.
fn problems_of(source: &Source) -> Option<Problems> {
    let mut problems = Problems::new();
    let started = Instant::now();
    let rules = load(source, &mut problems);
    let took = started.elapsed();
    assert!(took < TIME_MAX, "{} took {took:?}", source.name());
    (rules.is_none() && problems.has_errors()).then_some(problems)
}

fn source_of(path: &Path) -> Source {
    Source::new(path.file_name().unwrap_or_default().display().to_string(), &read(path))
}

/// The codes of all problems of a text.
fn codes(text: &str) -> Vec<&'static str> {
    let problems = problems_of(&Source::new("rules.yaml", text.as_bytes())).expect("an error");
    problems.in_order().iter().map(|problem| problem.code).collect()
}

#[test]
fn every_broken_file_has_its_expected_messages() {
    let files = broken_files();
    assert!(files.len() >= 64, "{} broken files", files.len());
    let distinct: BTreeSet<Vec<u8>> = files.iter().map(|path| read(path)).collect();
    assert_eq!(distinct.len(), files.len(), "two files are equal");

    let mut differences = Vec::new();
    for path in &files {
        let source = source_of(path);
        match problems_of(&source) {
            None => differences.push(format!("=== {} was accepted", source.name())),
            Some(problems) => {
                let rendered = problems.render(&source, Colour::Plain);
                differences.extend(difference(&path.with_extension("txt"), &rendered));
            }
        }
    }
    for text in files_below(&Path::new(CRATE).join("tests/broken"), ".txt") {
        if !files.contains(&text.with_extension("yaml")) {
            if is_blessing() {
                fs::remove_file(&text).expect("remove the text");
            } else {
                differences.push(format!("=== {} has no .yaml file", text.display()));
            }
        }
    }
    assert!(differences.is_empty(), "{} differ\n{}", differences.len(), differences.join("\n"));
}

/// Ensures that the message of every problem code was reviewed.
#[test]
fn every_problem_code_has_a_broken_file() {
    // The first three need files too large to commit; `unreadable` guards against mistakes in the loader; live changes, which
    // are not files, name hashes.
    let mut shown = BTreeSet::from(["too-large", "too-deep", "too-many-nodes", "unreadable", "bad-hash"]);
    for path in broken_files() {
        let problems = problems_of(&source_of(&path)).expect("an error");
        shown.extend(problems.in_order().iter().map(|problem| problem.code));
    }
    let sources =
        ["src/rules/", "../document/src/"].map(|folder| files_below(&Path::new(CRATE).join(folder), ".rs"));
    let mut known = BTreeSet::new();
    for path in sources.iter().flatten().filter(|path| !is_test(path)) {
        let text = String::from_utf8(read(path)).expect("sources are UTF-8");
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
        let code: String = lines.flat_map(str::split_whitespace).collect();
        for call in code.split("Problem::error(\"").skip(1) {
            known.insert(call.split('"').next().unwrap_or_default().to_owned());
        }
    }
    assert!(known.len() >= 30, "{known:?}");
    let unshown: Vec<&String> = known.iter().filter(|code| !shown.contains(code.as_str())).collect();
    assert!(unshown.is_empty(), "no broken file has {unshown:?}");
}

fn is_test(path: &Path) -> bool {
    let path = path.strip_prefix(CRATE).unwrap_or(path);
    path.components().any(|part| part.as_os_str() == "tests.rs" || part.as_os_str() == "tests")
}

#[test]
fn a_file_of_the_maximum_size_is_accepted_and_a_larger_one_is_not() {
    let rules = "version: 1\nrules: []\n";
    let padded = |bytes: usize| format!("{rules}{}\n", "#".repeat(bytes - rules.len() - 1));
    assert!(problems_of(&Source::new("rules.yaml", padded(1 << 20).as_bytes())).is_none());
    let source = Source::new("rules.yaml", padded((1 << 20) + 1).as_bytes());
    let rendered = problems_of(&source).expect("too large").render(&source, Colour::Plain);
    assert!(rendered.contains("file too large: 1048577 bytes; the maximum is 1048576"), "{rendered}");
}

#[test]
fn a_file_that_is_too_deep_or_has_too_many_values_has_one_problem() {
    let indented: String = (0..500).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
    for text in ["[".repeat(100_000), "{a: ".repeat(100_000), "- ".repeat(100_000), indented] {
        assert_eq!(codes(&text), ["too-deep"], "{}…", &text[..20]);
    }
    let values = format!("version: 1\nrules: [{}]\n", "1,".repeat(200_001));
    assert_eq!(codes(&values), ["too-many-nodes"]);
}

/// A file that starts with `beginning`, filled with up to `most` items.
fn filled(beginning: &str, most: usize, item: impl Fn(usize) -> String) -> String {
    let mut text = beginning.to_owned();
    for item in (0..most).map(item) {
        if text.len() + item.len() > 1 << 20 {
            break;
        }
        text.push_str(&item);
    }
    text
}

/// Fills files with what takes longest to process.
#[test]
fn the_worst_files_take_bounded_time() {
    const RULES: &str = "version: 1\nrules:\n";
    const ALL: usize = usize::MAX;
    let rule = |n| format!("- {{id: rule-{n:05}, per: user, limit: deny}}\n");
    let change = |n| format!("- {{rule: rude-{n:05}, when: {{a: b}}, limit: deny}}\n");
    let preset = |n| format!("- {{use: llm-tokens, id: p{n:05}}}\n");
    let quota = |n| format!("- {{id: r{n}, per: user, limit: {{quota: 9/day, zone: Europe/Berl{n}}}}}\n");
    let nested = "(".repeat(90) + "1" + &")".repeat(90);
    let cost = format!("{{expression: \"{nested}+{nested}\"}}");
    let expression = |n| format!("- {{id: r{n}, per: user, limit: {{quota: 9/day}}, cost: {cost}}}\n");
    let overridden = filled(RULES, 10_000, rule) + "overrides:\n";
    for (name, text) in [
        ("one id", filled(RULES, ALL, |_| rule(1))),
        (
            "unknown keys",
            filled(RULES, ALL, |n| format!("- {{id: r{n}, limt: deny, prr: user, mod: off}}\n")),
        ),
        ("one preset of one id", filled(RULES, ALL, |_| preset(1))),
        ("one preset of many ids", filled(RULES, 38_000, preset)),
        ("overrides of nothing", filled(&overridden, ALL, change)),
        ("unknown zones", filled(RULES, ALL, quota)),
        ("nested expressions", filled(RULES, 200, expression)),
    ] {
        let source = Source::new(name, text.as_bytes());
        let started = Instant::now();
        let problems = problems_of(&source).unwrap_or_default();
        let rendered = problems.render(&source, Colour::Plain);
        let took = started.elapsed();
        println!(
            "{name}: {} bytes, {} problems rendered in {} bytes, {took:?}",
            text.len(),
            problems.len(),
            rendered.len()
        );
        assert!(took < TIME_MAX, "{name} took {took:?}");
        let read_to_its_end = problems.in_order().iter().all(|problem| problem.code != "too-many-nodes");
        assert!(read_to_its_end, "{name} has too many values");
    }
}
