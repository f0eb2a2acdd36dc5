//! The instructions of one decision stay within 3 % of the recorded figures.
//!
//! The test counts instructions instead of time, so that a busy machine cannot fail it. It runs itself under callgrind once
//! for each figure, which counts only what happens inside [`measured_path`]. The figures are stored in `hot_paths.txt`; `TOLLGATE_BLESS=1 cargo test -p tollgate --test hot_paths` writes it.

mod common;

use std::env;
use std::fmt::Write;
use std::fs;
use std::hint::black_box;
use std::process::Command;

use common::hot_path_rules::{bare_step, check};

/// Decisions per figure, after a warm-up that is not counted.
const DECISIONS: u64 = 1_000;
const WARM_UP: u64 = 100;

/// The recorded figures.
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/hot_paths.txt");

/// The variable that names the path of a run under callgrind.
const FIGURE: &str = "TOLLGATE_HOT_PATH";

/// The name of the test below, which runs itself.
const TEST: &str = "a_decision_takes_as_many_instructions_as_recorded";

/// Makes one decision. Returns whether it was admitted.
type Decide = Box<dyn Fn() -> bool>;

/// A measured path.
struct Path {
    name: &'static str,
    ready: fn() -> Decide,
}

const PATHS: [Path; 3] = [
    Path { name: "one step by key", ready: bare_step },
    Path { name: "check, 20 rules, 1 matches", ready: || check("search") },
    Path { name: "check, 20 rules, 3 match", ready: || check("export") },
];

/// Callgrind counts what happens inside this function. Returns the number of admissions.
#[inline(never)]
fn measured_path(decide: &Decide, decisions: u64) -> u64 {
    (0..decisions).map(|_| u64::from(black_box(decide()))).sum()
}

/// Runs under callgrind.
fn run_path(name: &str) {
    let path = PATHS.iter().find(|path| path.name == name).expect("the path exists");
    let decide = (path.ready)();
    (0..WARM_UP).for_each(|_| assert!(decide(), "every decision is an admission"));
    assert_eq!(measured_path(&decide, DECISIONS), DECISIONS, "every decision is an admission");
}

fn compiler() -> String {
    let output = Command::new("rustc").arg("--version").output().expect("there is a compiler");
    String::from_utf8(output.stdout).expect("a version is text").trim().to_owned()
}

/// How the code under test was compiled, compared with the recorded figures.
#[derive(Clone, Copy, Debug)]
enum Build {
    /// By the same compiler, in the test profile.
    Same,
    /// By another compiler.
    OtherCompiler,
    /// In the release profile.
    Release,
}

impl Build {
    fn now(written_by: Option<&str>) -> Build {
        if !cfg!(debug_assertions) {
            Build::Release
        } else if written_by == Some(compiler().as_str()) {
            Build::Same
        } else {
            Build::OtherCompiler
        }
    }

    /// How many percent more instructions are accepted.
    const fn more_percent_max(self) -> u64 {
        match self {
            Build::Same => 3,
            Build::OtherCompiler => 15,
            Build::Release => 0,
        }
    }

    /// How many percent fewer instructions are accepted before the figure must be recorded again.
    const fn fewer_percent_max(self) -> u64 {
        match self {
            Build::Same => 3,
            Build::OtherCompiler | Build::Release => 100,
        }
    }
}

/// The fault of a figure, if there is one.
fn fault(name: &str, written: Option<u64>, found: u64, build: Build) -> Option<String> {
    let Some(written) = written else { return Some(format!("{name}: no figure is recorded; found {found}")) };
    let (more, fewer) = (found.saturating_sub(written), written.saturating_sub(found));
    if more * 100 > build.more_percent_max() * written {
        Some(format!("{name}: {found} instructions, more than the recorded {written}"))
    } else if fewer * 100 > build.fewer_percent_max() * written {
        Some(format!(
            "{name}: {found} instructions, fewer than the recorded {written}; record the new figure"
        ))
    } else {
        None
    }
}

#[test]
fn a_decision_takes_as_many_instructions_as_recorded() {
    if let Ok(path) = env::var(FIGURE) {
        return run_path(&path);
    }
    let count = |path: &Path| {
        tollgate_testkit::callgrind::instructions(TEST, "measured_path", (FIGURE, path.name)) / DECISIONS
    };
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
    let build = Build::now(written("compiler"));
    let faults: Vec<String> = found
        .iter()
        .filter_map(|&(name, found)| {
            fault(name, written(name).and_then(|count| count.parse().ok()), found, build)
        })
        .collect();
    assert!(
        faults.is_empty(),
        "{}\nhint: if this is intended, run TOLLGATE_BLESS=1 cargo test -p tollgate --test hot_paths",
        faults.join("\n")
    );
}

#[test]
fn a_figure_may_differ_by_at_most_three_percent() {
    for (build, found, is_fine) in [
        (Build::Same, 969, false),
        (Build::Same, 970, true),
        (Build::Same, 1_030, true),
        (Build::Same, 1_031, false),
        (Build::OtherCompiler, 500, true),
        (Build::OtherCompiler, 1_150, true),
        (Build::OtherCompiler, 1_151, false),
        (Build::Release, 500, true),
        (Build::Release, 1_001, false),
    ] {
        assert_eq!(fault("path", Some(1_000), found, build).is_none(), is_fine, "{build:?} {found}");
    }
    assert!(fault("path", None, 1, Build::Same).is_some());
}
