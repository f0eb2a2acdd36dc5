//! Runs `tollgate test` and checks its results, its messages and its exit codes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Five at once, then two a second per key; a shadow rule refuses the second request of a user.
const RULES: &str = "version: 1
namespace: tests
unmatched: refuse
rules:
  - { id: search, match: { action: search }, per: api_key, limit: { token-bucket: 2/s, burst: 5 } }
  - { id: tried, match: { action: search }, per: user, mode: shadow, limit: { fixed-window: 1/min } }
deny:
  - { when: { api_key: stolen } }
bypass:
  - { when: { service: probe } }
";

struct Run {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

/// A folder with `rules.yaml`, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("rule-tests-{name}"));
        fs::create_dir_all(&path).expect("a folder");
        let folder = Folder(path);
        folder.write("rules.yaml", RULES);
        folder
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.0.join(name), text).expect("the file is written");
    }

    fn run(&self, args: &[&str]) -> Run {
        tollgate(&self.0, args)
    }

    /// Runs one test with these steps and the request `action=search api_key=k`.
    fn steps(&self, steps: &str, args: &[&str]) -> Run {
        let request = "{ action: search, api_key: k }";
        let file =
            format!("rules: rules.yaml\ntests:\n  - name: one\n    request: {request}\n    steps:\n{steps}");
        self.write("one.yaml", &file);
        self.run(&[&["one.yaml"], args].concat())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("cannot remove {}: {error}", self.0.display());
        }
    }
}

fn tollgate(folder: &Path, args: &[&str]) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.arg("test").args(args).current_dir(folder);
    for name in ["CLICOLOR_FORCE", "TOLLGATE_HASH_KEY"] {
        command.env_remove(name);
    }
    let output = command.output().expect("the binary runs");
    let [stdout, stderr] =
        [output.stdout, output.stderr].map(|text| String::from_utf8(text).expect("it prints text"));
    Run { code: output.status.code(), stdout, stderr }
}

#[test]
fn the_tests_of_the_shop_pass() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let run = tollgate(&root, &["examples/rules/shop.test.yaml"]);
    assert_eq!(run.code, Some(0), "{}{}", run.stdout, run.stderr);
    assert!(run.stdout.ends_with("6 tests, all passed\n"), "{}", run.stdout);
}

/// Each step holds, and fails with any other value of its last key.
#[test]
fn every_expectation_is_compared() {
    let folder = Folder::new("expectations");
    for (step, right, wrong) in [
        ("times: 6, allowed", "5", "6"),
        ("times: 6, allowed: 5, rule", "search", "tried"),
        ("times: 6, allowed: 5, retry_after", "500ms", "501ms"),
        ("times: 5, allowed: 5, rule", "search", "tried"),
        ("times: 2, allowed: 2, remaining", "3", "4"),
        ("cost: 3, times: 2, allowed", "1", "2"),
        ("request: { api_key: stolen }, allowed: 0, by", "deny", "unmatched"),
        ("request: { service: probe }, times: 9, allowed: 9, by", "bypass", "deny"),
        ("request: { action: about }, allowed: 0, by", "unmatched", "bypass"),
        ("request: { user: u }, times: 3, allowed: 3, shadow_refused", "2", "3"),
    ] {
        let key = step.rsplit(' ').next().expect("a key");
        let run = folder.steps(&format!("      - {{ {step}: {right} }}\n"), &[]);
        assert_eq!(run.code, Some(0), "{step}: {right}: {}{}", run.stdout, run.stderr);
        let run = folder.steps(&format!("      - {{ {step}: {wrong} }}\n"), &[]);
        assert_eq!(run.code, Some(1), "{step}: {wrong}: {}{}", run.stdout, run.stderr);
        let line = format!("    {key}: expected {wrong}, got {right}\n");
        assert!(run.stdout.contains(&line), "{step}: no {line:?} in {}", run.stdout);
    }
}

#[test]
fn steps_run_at_their_times() {
    let folder = Folder::new("times");
    let steps = "      - { times: 5, allowed: 5 }
      - { at: 499ms, allowed: 0, retry_after: 1ms }
      - { at: +1ms, allowed: 1 }
      - { at: 1s, times: 2, allowed: 1 }
      - { at: 2026-01-01T00:00:03Z, times: 5, allowed: 4 }
";
    let run = folder.steps(steps, &[]);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{}", run.stdout);
}

#[test]
fn a_failing_step_shows_the_numbers_of_every_rule() {
    let folder = Folder::new("numbers");
    let run = folder.steps("      - { times: 6, allowed: 6 }\n", &[]);
    let expected = "\
FAILED  one  one.yaml:3
  step 1 (line 6) at 0ms: 6 requests action=search api_key=k
    allowed: expected 6, got 5
    the last request was refused
      search refuses: limit 5, remaining 0, retry after 500ms, reset in 2500ms
1 test, 1 failed
";
    assert_eq!((run.code, run.stdout.as_str()), (Some(1), expected));
}

#[test]
fn a_request_that_cannot_be_decided_fails_its_step() {
    let folder = Folder::new("undecided");
    let run = folder.steps("      - { cost: 6, allowed: 0 }\n", &[]);
    assert_eq!(run.code, Some(1));
    assert!(run.stdout.contains("request 1 could not be decided: "), "{}", run.stdout);
}

#[test]
fn results_as_json_have_every_step() {
    let folder = Folder::new("json");
    let run =
        folder.steps("      - { allowed: 1 }\n      - { at: +1s, allowed: 0 }\n", &["--format", "json"]);
    let value: Value = serde_json::from_str(&run.stdout).expect("JSON");
    assert_eq!(run.code, Some(1));
    assert_eq!((&value["tests"], &value["failed"]), (&1.into(), &1.into()));
    let steps = &value["results"][0]["steps"];
    assert_eq!((&steps[0]["passed"], &steps[1]["passed"]), (&true.into(), &false.into()));
    assert_eq!(steps[1]["at_ms"], 1_000);
    let difference = serde_json::json!({ "key": "allowed", "expected": "0", "got": "1" });
    assert_eq!(steps[1]["differences"], serde_json::json!([difference]));
    assert_eq!(steps[1]["rules"][0]["remaining"], 4);
}

#[test]
fn all_problems_of_a_test_file_are_reported_at_once() {
    let folder = Folder::new("problems");
    folder.write(
        "tests.yaml",
        "tests:
  - name: a
    rules: rules.yaml
    steps:
      - { at: 5s, alowed: 1 }
      - { at: 4s, allowed: 2 }
      - { at: soon, allowed: 1, rule: serch }
      - { allowed: 0, rule: search, by: deny }
  - name: a
    steps:
      - { allowed: 1 }
  - name: c
    rules: missing.yaml
    steps: []
",
    );
    let run = folder.run(&["tests.yaml", "--format", "json"]);
    let value: Value = serde_json::from_str(&run.stdout).expect("JSON");
    let found: Vec<String> = value["problems"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|problem| {
            format!("{}:{} {}", problem["line"], problem["column"], problem["code"].as_str().unwrap())
        })
        .collect();
    let expected = [
        "5:19 unknown-key",
        "6:15 time-goes-back",
        "6:28 allowed-above-times",
        "7:15 bad-text",
        "7:39 unknown-rule",
        "8:37 two-deciders",
        "9:5 missing-rules",
        "9:11 duplicate-name",
        "13:12 bad-rules",
        "14:12 too-few-items",
    ];
    assert_eq!((run.code, found), (Some(2), expected.map(str::to_owned).to_vec()));
}

#[test]
fn an_invalid_rules_file_is_reported_with_its_own_problems_and_other_files_run() {
    let folder = Folder::new("invalid-rules");
    folder.write("broken.yaml", "version: 1\nrules:\n  - { id: a, per: all, limt: deny }\n");
    let file = |rules: &str| format!("rules: {rules}\ntests: [{{ name: t, steps: [{{ allowed: 0 }}] }}]\n");
    folder.write("bad.yaml", &file("broken.yaml"));
    folder.write("good.yaml", &file("rules.yaml"));
    let run = folder.run(&["bad.yaml", "good.yaml"]);
    assert_eq!((run.code, run.stdout.as_str()), (Some(2), "ok      t  good.yaml:2\n1 test, all passed\n"));
    for text in ["unknown key `limt`", "broken.yaml:3:", "invalid rules file broken.yaml", "bad.yaml:1:8"] {
        assert!(run.stderr.contains(text), "no {text:?} in {}", run.stderr);
    }
}

#[test]
fn an_unreadable_test_file_is_an_input_error() {
    let run = Folder::new("unreadable").run(&["nothing.yaml"]);
    assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""));
    assert!(run.stderr.contains("cannot read nothing.yaml"), "{}", run.stderr);
}

#[test]
fn the_schema_of_test_files_names_their_keys() {
    let run = Folder::new("schema").run(&["--schema"]);
    let schema: Value = serde_json::from_str(&run.stdout).expect("JSON");
    assert_eq!(run.code, Some(0));
    assert!(schema["properties"]["tests"].is_object(), "{schema}");
}
