//! What a decision costs does not grow unseen.
//!
//! Instructions are counted, not time, so that a busy machine cannot fail the test: it runs itself once more for every
//! figure, under callgrind, which counts what happens inside of [`measured_path`] and nothing else. The figures lie in
//! `hot_paths.txt`; `TOLLGATE_BLESS=1 cargo test -p tollgate --test hot_paths` writes it.

#[path = "common/blessing.rs"]
#[expect(dead_code, reason = "figures are compared with a tolerance, not as text")]
mod blessing;
#[path = "common/hot_path_rules.rs"]
mod hot_path_rules;

use std::env;
use std::fmt::Write;
use std::fs;
use std::hint::black_box;
use std::process::Command;

use hot_path_rules::{bare_step, check};

/// Decisions per figure, after a few that nobody counts.
const DECISIONS: u64 = 1_000;
const WARM_UP: u64 = 100;

/// A figure may differ by so much from what is written down.
const TOLERANCE_PERCENT: u64 = 3;

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

/// The instructions of one decision.
fn instructions(name: &str) -> u64 {
    let run = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--toggle-collect=*measured_path*"])
        .arg(env::current_exe().expect("a test knows its program"))
        .args(["--exact", TEST, "--test-threads=1"])
        .env(FIGURE, name)
        .output()
        .unwrap_or_else(|error| panic!("this test needs valgrind (`cargo xtask test` installs it): {error}"));
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{}\n{said}{}", run.status, String::from_utf8_lossy(&run.stdout));
    let collected = said.lines().find_map(|line| line.split_once("Collected :"));
    let collected = collected.and_then(|(_, count)| count.trim().parse::<u64>().ok());
    let collected = collected.filter(|&count| count > 0);
    collected.unwrap_or_else(|| panic!("callgrind did not see the function\n{said}")) / DECISIONS
}

/// Other compilers make other code, so figures are compared only with those of the same one.
fn compiler() -> String {
    let said = Command::new("rustc").arg("--version").output().expect("whoever tests has a compiler");
    String::from_utf8(said.stdout).expect("a version is text").trim().to_owned()
}

/// What is wrong with a figure, if anything.
fn complaint(name: &str, written: Option<u64>, found: u64) -> Option<String> {
    let Some(written) = written else { return Some(format!("{name}: not written down yet; found {found}")) };
    let change = found.abs_diff(written) * 100;
    match found > written {
        _ if change <= TOLERANCE_PERCENT * written => None,
        true => Some(format!("{name}: {found} instructions, more than the {written} written down")),
        false => {
            Some(format!("{name}: {found} instructions, fewer than the {written} written down: bless them"))
        }
    }
}

#[test]
fn a_decision_takes_as_many_instructions_as_is_written_down() {
    if let Ok(path) = env::var(FIGURE) {
        return run_path(&path);
    }
    if !cfg!(debug_assertions) {
        return println!("not compared: the figures are those of the profile in which tests run by default");
    }
    let compiler = compiler();
    let found: Vec<(&str, u64)> = PATHS.iter().map(|path| (path.name, instructions(path.name))).collect();
    found.iter().for_each(|(name, count)| println!("{name}: {count}"));
    if blessing::is_blessing() {
        let mut text = format!("compiler: {compiler}\n");
        for (name, count) in &found {
            writeln!(text, "{name}: {count}").expect("a string takes everything");
        }
        fs::write(FILE, text).expect("the file can be written");
    }
    let text = fs::read_to_string(FILE).unwrap_or_else(|error| panic!("{FILE}: {error}"));
    let written = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    if written("compiler") != Some(compiler.as_str()) {
        return println!("not compared: written down with {:?}, this is {compiler}", written("compiler"));
    }
    let complaints: Vec<String> = found
        .iter()
        .filter_map(|&(name, found)| {
            complaint(name, written(name).and_then(|count| count.parse().ok()), found)
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
    for (found, is_fine) in [(969, false), (970, true), (1_000, true), (1_030, true), (1_031, false)] {
        assert_eq!(complaint("path", Some(1_000), found).is_none(), is_fine, "{found}");
    }
    assert!(complaint("path", None, 1).is_some());
}
