//! What a decision costs does not grow unseen.
//!
//! Instructions are counted, not time, so that a busy machine cannot fail the test: it runs itself once more for every
//! figure, under callgrind, which counts what happens inside of [`measured_path`] and nothing else. The figures lie in
//! `hot_paths.txt`; `TOLLGATE_BLESS=1 cargo test -p tollgate --test hot_paths` writes it.

mod common;

use std::env;
use std::fmt::Write;
use std::fs;
use std::hint::black_box;
use std::process::Command;

use common::hot_path_rules::{bare_step, check};

/// Decisions per figure, after a few that nobody counts.
const DECISIONS: u64 = 1_000;
const WARM_UP: u64 = 100;

/// Where the figures lie.
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/hot_paths.txt");

/// Names the path that a run under callgrind is for.
const FIGURE: &str = "TOLLGATE_HOT_PATH";

/// The name of the test below, by which it runs itself.
const TEST: &str = "a_decision_takes_as_many_instructions_as_is_written_down";

/// Something that is done for every request. Gives whether it was admitted.
type Decide = Box<dyn Fn() -> bool>;

/// What is measured.
struct Path {
    name: &'static str,
    ready: fn() -> Decide,
}

const PATHS: [Path; 3] = [
    Path { name: "one step by key", ready: bare_step },
    Path { name: "check, 20 rules, 1 matches", ready: || check("search") },
    Path { name: "check, 20 rules, 3 match", ready: || check("export") },
];

/// What callgrind counts, by the name of this function. Gives how many were admitted.
#[inline(never)]
fn measured_path(decide: &Decide, decisions: u64) -> u64 {
    (0..decisions).map(|_| u64::from(black_box(decide()))).sum()
}

/// What happens under callgrind.
fn run_path(name: &str) {
    let path = PATHS.iter().find(|path| path.name == name).expect("the path is one of ours");
    let decide = (path.ready)();
    (0..WARM_UP).for_each(|_| assert!(decide(), "everything is admitted"));
    assert_eq!(measured_path(&decide, DECISIONS), DECISIONS, "everything is admitted");
}

fn compiler() -> String {
    let said = Command::new("rustc").arg("--version").output().expect("whoever tests has a compiler");
    String::from_utf8(said.stdout).expect("a version is text").trim().to_owned()
}

/// How figures compare with those written down.
#[derive(Clone, Copy, Debug)]
enum Made {
    /// By the same compiler, in the profile of the tests.
    Alike,
    /// By a compiler that makes other code.
    ByAnother,
    /// With everything that makes code fast.
    ForRelease,
}

impl Made {
    fn now(written_by: Option<&str>) -> Made {
        if !cfg!(debug_assertions) {
            Made::ForRelease
        } else if written_by == Some(compiler().as_str()) {
            Made::Alike
        } else {
            Made::ByAnother
        }
    }

    /// How many per cent more there may be.
    const fn more_percent_max(self) -> u64 {
        match self {
            Made::Alike => 3,
            Made::ByAnother => 15,
            Made::ForRelease => 0,
        }
    }

    /// How many per cent fewer there may be before they are worth writing down.
    const fn fewer_percent_max(self) -> u64 {
        match self {
            Made::Alike => 3,
            Made::ByAnother | Made::ForRelease => 100,
        }
    }
}

/// What is wrong with a figure, if anything.
fn complaint(name: &str, written: Option<u64>, found: u64, made: Made) -> Option<String> {
    let Some(written) = written else { return Some(format!("{name}: not written down yet; found {found}")) };
    let (more, fewer) = (found.saturating_sub(written), written.saturating_sub(found));
    if more * 100 > made.more_percent_max() * written {
        Some(format!("{name}: {found} instructions, more than the {written} written down"))
    } else if fewer * 100 > made.fewer_percent_max() * written {
        Some(format!("{name}: {found} instructions, fewer than the {written} written down: bless them"))
    } else {
        None
    }
}

#[test]
fn a_decision_takes_as_many_instructions_as_is_written_down() {
    if let Ok(path) = env::var(FIGURE) {
        return run_path(&path);
    }
    let count =
        |path: &Path| common::callgrind::instructions(TEST, "measured_path", (FIGURE, path.name)) / DECISIONS;
    let found: Vec<(&str, u64)> = PATHS.iter().map(|path| (path.name, count(path))).collect();
    found.iter().for_each(|(name, count)| println!("{name}: {count}"));
    if common::blessing::is_blessing() {
        let mut text = format!("compiler: {}\n", compiler());
        for (name, count) in &found {
            writeln!(text, "{name}: {count}").expect("a string takes everything");
        }
        fs::write(FILE, text).expect("the file can be written");
    }
    let text = fs::read_to_string(FILE).unwrap_or_else(|error| panic!("{FILE}: {error}"));
    let written = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    let made = Made::now(written("compiler"));
    let complaints: Vec<String> = found
        .iter()
        .filter_map(|&(name, found)| {
            complaint(name, written(name).and_then(|count| count.parse().ok()), found, made)
        })
        .collect();
    assert!(
        complaints.is_empty(),
        "{}\nhint: if that is meant, TOLLGATE_BLESS=1 cargo test -p tollgate --test hot_paths",
        complaints.join("\n")
    );
}

#[test]
fn a_figure_may_differ_by_three_per_cent_and_not_by_more() {
    for (made, found, is_fine) in [
        (Made::Alike, 969, false),
        (Made::Alike, 970, true),
        (Made::Alike, 1_030, true),
        (Made::Alike, 1_031, false),
        (Made::ByAnother, 500, true),
        (Made::ByAnother, 1_150, true),
        (Made::ByAnother, 1_151, false),
        (Made::ForRelease, 500, true),
        (Made::ForRelease, 1_001, false),
    ] {
        assert_eq!(complaint("path", Some(1_000), found, made).is_none(), is_fine, "{made:?} {found}");
    }
    assert!(complaint("path", None, 1, Made::Alike).is_some());
}
