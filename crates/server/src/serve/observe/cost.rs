//! What lists of subjects and references cost, in instructions: a busy machine cannot fail it.
//!
//! `cargo test --release -p tollgate-server --lib cost -- --nocapture` prints the figures of an optimised build.

use std::env;
use std::hint::black_box;
use std::process::Command;
use std::sync::Arc;

use tollgate::MemoryStore;
use tollgate::core::{Attributes, SubjectHasher};
use tollgate::engine::{Engine, Setup};

use super::*;
use crate::config::LogFormat;
use crate::reference::References;

const TEST: &str = "serve::observe::cost::a_reference_and_the_lists_of_subjects_cost_few_instructions";
const VARIABLE: &str = "TOLLGATE_COST";
const CHECKS: u64 = 50_000;
const REFERENCES: u64 = 1_000;
/// Some rules match, as in the figures of the library.
const RULES: &str = "
version: 1
rules:
  - { id: key, per: user, limit: { token-bucket: 1000000/s } }
  - { id: day, per: user, limit: { fixed-window: 1000000000/d } }
  - { id: never, match: { action: other }, per: user, limit: { fixed-window: 1/d } }
  - { id: full, match: { action: full }, per: user, limit: { fixed-window: 1/d } }
";

struct Bench {
    engine: Engine<MemoryStore>,
    recorder: Recorder,
    users: Vec<String>,
}

impl Bench {
    fn new() -> Bench {
        let hasher = SubjectHasher::new([7; 32]);
        let setup = Setup::default().rules_yaml(RULES).hash_key(hasher);
        let engine = setup.build(MemoryStore::new()).expect("the rules are right");
        let log = LogConfig { format: LogFormat::Text, filter: String::new(), refusals_per_second: 1 };
        let recorder = engine.with_rules(|rules| Recorder::new(rules, Arc::default(), &log, None, None));
        Bench { engine, recorder, users: (0..1_000).map(|number| format!("user-{number}")).collect() }
    }

    fn check(&self, number: u64) {
        let user = &self.users[(number % 1_000) as usize];
        let attributes = Attributes::from_iter([("user", user.as_str()), ("action", "search")]);
        let request = Request::new(&attributes);
        let decided = self.engine.check_now(request);
        self.recorder.decided(&Origin::from(Edge::Http), &request, &decided, None, self.engine.hashers());
        black_box(decided.is_ok());
    }
}

#[inline(never)]
fn measured_checks(bench: &Bench) {
    (0..CHECKS).for_each(|number| bench.check(number));
}

#[inline(never)]
fn measured_samplers(samplers: &Samplers) -> u32 {
    (0..CHECKS).map(|_| black_box(samplers.weight(black_box(false)))).sum()
}

#[inline(never)]
fn measured_references(references: &References, decision: &Decision) {
    (0..REFERENCES).for_each(|_| drop(black_box(references.of(decision, "80bc55d6a1f0c317"))));
}

fn run(what: &str) {
    let bench = Bench::new();
    // Beyond the first checks of a second, which are all noted.
    (0..2_000).for_each(|number| bench.check(number));
    match what {
        "references" => {
            let attributes = Attributes::from_iter([("user", "u"), ("action", "full")]);
            let refused =
                (0..2).map(|_| bench.engine.check_now(Request::new(&attributes)).expect("a decision"));
            let refused = refused.last().expect("a decision");
            let references = References::new(bench.engine.hashers(), "api-eu-1").expect("keys");
            assert!(references.of(&refused, "").is_some());
            measured_references(&references, &refused);
        }
        "samplers" => drop(black_box(measured_samplers(&bench.recorder.samplers))),
        _ => measured_checks(&bench),
    }
}

/// The instructions in a function while the test runs itself under callgrind.
fn instructions(function: &str, what: &str) -> u64 {
    let run = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(format!("--toggle-collect=*{function}*"))
        .arg(env::current_exe().expect("the path of the test program"))
        .args(["--exact", TEST, "--test-threads=1"])
        .env(VARIABLE, what)
        .output()
        .unwrap_or_else(|error| panic!("this test needs valgrind (`cargo xtask test` installs it): {error}"));
    let output = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{}\n{output}{}", run.status, String::from_utf8_lossy(&run.stdout));
    let collected = output.lines().find_map(|line| line.split_once("Collected :"));
    let collected = collected.and_then(|(_, count)| count.trim().parse::<u64>().ok());
    collected
        .filter(|&count| count > 0)
        .unwrap_or_else(|| panic!("callgrind did not see {function}\n{output}"))
}

#[test]
fn a_reference_and_the_lists_of_subjects_cost_few_instructions() {
    if let Ok(what) = env::var(VARIABLE) {
        return run(&what);
    }
    let all = instructions("measured_checks", "checks");
    let noted = instructions("note_subjects", "checks");
    let chosen = instructions("measured_samplers", "samplers");
    let reference = instructions("measured_references", "references") / REFERENCES;
    let check = (all - noted) as f64 / CHECKS as f64;
    let lists = (noted + chosen) as f64 / CHECKS as f64;
    let percent = lists * 100.0 / check;
    println!(
        "a check: {check:.0} instructions; lists of subjects: {lists:.1} ({percent:.2} %); a reference: {reference}"
    );
    // The library is optimised in every build, this crate in releases only.
    let (percent_max, reference_max) = if cfg!(debug_assertions) { (12.0, 60_000) } else { (3.0, 6_000) };
    assert!(percent <= percent_max, "the lists of subjects cost {percent:.2} % of a check");
    assert!(reference < reference_max, "a reference takes {reference} instructions");
}
