//! Runs the binary and checks its output and exit codes.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

const COMMANDS: [&str; 18] = [
    "lint",
    "test",
    "explain",
    "import",
    "check",
    "serve",
    "config",
    "token",
    "try",
    "estimate",
    "guide",
    "presets",
    "reset",
    "ledger",
    "database",
    "schema",
    "completions",
    "man",
];
const TYPOS: &str = "crates/server/tests/rules/typos.yaml";
const PRECEDENCE: &str = "crates/server/tests/rules/precedence.yaml";
const SHOP: &str = "examples/rules/shop.yaml";

/// A rules file without problems.
const CLEAN: &str =
    "version: 1\nrules:\n  - { id: a, per: user, missing: refuse, limit: { sliding-log: 5/min } }\n";

struct Run {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Run {
    fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {}", self.stdout))
    }

    fn last_line(&self) -> &str {
        self.stdout.lines().last().unwrap_or_default()
    }
}

fn binary(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.args(args).current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
    for name in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "TOLLGATE_BLESS", "TOLLGATE_HASH_KEY"] {
        command.env_remove(name);
    }
    command
}

fn tollgate(args: &[&str]) -> Run {
    run(binary(args), "")
}

fn tollgate_reading(input: &str, args: &[&str]) -> Run {
    run(binary(args), input)
}

fn run(mut command: Command, input: &str) -> Run {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut stdin = child.stdin.take().expect("it is piped");
    stdin.write_all(input.as_bytes()).expect("the input is smaller than a pipe");
    drop(stdin);
    let output = child.wait_with_output().expect("the binary ends");
    Run {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).expect("it prints text"),
        stderr: String::from_utf8(output.stderr).expect("it prints text"),
    }
}

/// Returns the path of a folder for one test, which does not exist yet.
fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if folder.exists() {
        std::fs::remove_dir_all(&folder).expect("old files can be removed");
    }
    folder
}

/// Compares output with a file below `tests`. `TOLLGATE_BLESS=1 cargo test -p tollgate-server --test cli` writes the
/// files; read the difference before you commit it.
fn assert_snapshot(file: &str, found: &str) {
    // The help has lines of spaces, which no editor keeps.
    let found: String = found.lines().map(|line| format!("{}\n", line.trim_end())).collect();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(file);
    if std::env::var_os("TOLLGATE_BLESS").is_some_and(|value| value == "1") {
        std::fs::write(&path, &found).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_else(|error| format!("{error}\n"));
    assert!(expected == found, "{file}\n--- expected\n{expected}--- found\n{found}");
}

#[test]
fn help_of_every_command_matches_its_snapshot() {
    assert_snapshot("help/tollgate.txt", &tollgate(&["--help"]).stdout);
    for command in COMMANDS {
        assert_snapshot(&format!("help/{command}.txt"), &tollgate(&[command, "--help"]).stdout);
    }
    for (command, subcommands) in [
        ("ledger", &["verify", "usage", "export", "correct", "grant"][..]),
        ("database", &["status", "migrate", "backup"]),
    ] {
        for subcommand in subcommands {
            let help = tollgate(&[command, subcommand, "--help"]).stdout;
            assert_snapshot(&format!("help/{command}-{subcommand}.txt"), &help);
        }
    }
    for format in ["envoy", "limitador"] {
        let help = tollgate(&["import", format, "--help"]).stdout;
        assert_snapshot(&format!("help/import-{format}.txt"), &help);
    }
}

#[test]
fn json_outputs_match_their_snapshots() {
    let cases: [(&str, &[&str]); 3] = [
        ("config", &["config", "--threads", "2"]),
        ("estimate", &["estimate", "--rules", SHOP, "--subjects", "1000"]),
        (
            "explain",
            &[
                "explain",
                "--rules",
                PRECEDENCE,
                "--at",
                NOW,
                "path=/v1/items/7",
                "method=GET",
                "user=u",
                "plan=pro",
            ],
        ),
    ];
    for (name, args) in cases {
        let run = tollgate(&[args, &["--format", "json"]].concat());
        assert_snapshot(&format!("json/{name}.json"), &run.stdout);
    }
}

#[test]
fn every_command_documents_its_exit_codes_and_is_listed() {
    let all = tollgate(&["--help"]);
    for command in COMMANDS {
        assert!(
            all.stdout.lines().any(|line| line.trim_start().starts_with(&format!("{command} "))),
            "{command}"
        );
        let help = tollgate(&[command, "--help"]);
        assert_eq!(help.code, Some(0), "{command}");
        let (_, codes) =
            help.stdout.split_once("Exit codes:").unwrap_or_else(|| panic!("{command}: no exit codes"));
        assert!(codes.contains('0') && codes.contains('2'), "{command}: {codes}");
    }
    let listed = all
        .stdout
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty());
    assert_eq!(
        listed.count(),
        COMMANDS.len() + 1,
        "all commands are in this test's list, and there is `help`"
    );
}

#[test]
fn invalid_command_line_or_file_exits_with_2_and_prints_an_error_first() {
    let cases: &[&[&str]] = &[
        &["lnt"],
        &["lint"],
        &["lint", "--format", "xml", SHOP],
        &["lint", "-", "-"],
        &["lint", "no/such/file.yaml"],
        &["lint", "examples"],
        &["explain", "tenant=acme"],
        &["explain", "--rules", "no/such/file.yaml"],
        &["explain", "--rules", SHOP, "tenant"],
        &["explain", "--rules", SHOP, "=acme"],
        &["explain", "--rules", SHOP, "tenant=a", "tenant=b"],
        &["explain", "--rules", SHOP, "--at", "tomorrow"],
        &["explain", "--rules", SHOP, "--at", "1969-12-31T00:00:00Z"],
        &["explain", "--rules", SHOP, "--at", "2300-01-01T00:00:00Z"],
        &["explain", "--rules", SHOP, "--hash-key-file", SHOP],
        &["check", "tenant=acme"],
        &["check", "--rules", "no/such/file.yaml"],
        &["check", "--rules", SHOP, "tenant=a", "tenant=b"],
        &["check", "--rules", SHOP, "--at", "+soon"],
        &["check", "--rules", SHOP, "--at", "1.5s"],
        &["check", "--rules", SHOP, "--times", "0"],
        &["check", "--rules", SHOP, "--format", "text"],
        &["check", "--rules", SHOP, "--cost", "1051", "action=export", "tenant=t"],
        &["serve", "--http", "localhost:8080"],
        &["serve", "--http", "0.0.0.0:8080"],
        &["serve", "--store", "redis://localhost:6379"],
        &["serve", "--rules", "no/such/file.yaml"],
        &["serve", "--hash-key", "0123"],
        &["config", "--config", "no/such/file.yaml"],
        &["config", "--format", "yaml"],
        &["config", "--tokens", "a"],
        &["token", "--scopes", "everything"],
        &["token", "--name", "two words"],
        &["try"],
        &["try", "token-bucket: 2/s", "--every", "soon"],
        &["try", "token-bucket: 2/s", "--cost", "3"],
        &["estimate", "--rules", SHOP],
        &["estimate", "--rules", SHOP, "--subjects", "0"],
        &["estimate", "--rules", SHOP, "--subjects", "many"],
        &["estimate", "--rules", SHOP, "--subjects", "login-account=7"],
        &["estimate", "--rules", SHOP, "--subjects", "7", "--subjects", "serch-per-key=7"],
        &["estimate", "--rules", SHOP, "--subjects", "7", "--engine", "memcached"],
        &["estimate", "--rules", SHOP, "--subjects", "7", "--engine", "redis", "--server", "redis"],
        &["config", "--grace", "1s", "--shutdown-timeout", "1s"],
        &["guide", "--want", "everything"],
        &["presets", "no-such-preset"],
        &["completions", "tcl"],
        &["man", "--out", SHOP],
    ];
    for args in cases {
        let run = tollgate(args);
        assert_eq!(run.code, Some(2), "{args:?}: {}", run.stderr);
        // A problem with a position has a code after the word.
        assert!(
            run.stderr.starts_with("error: ") || run.stderr.starts_with("error["),
            "{args:?}: {}",
            run.stderr
        );
    }
}

/// Two enforced rules, and a shadow rule.
const THREE: &str = "version: 1
rules:
  - { id: burst, per: user, limit: { token-bucket: 2/s, burst: 3 } }
  - { id: hour, per: user, limit: { fixed-window: 100/h } }
  - { id: trial, per: user, mode: shadow, limit: { fixed-window: 1/min } }
";

fn check<'a>(args: &[&'a str]) -> Vec<&'a str> {
    [&["check", "--rules", "-", "user=u"], args].concat()
}

#[test]
fn check_charges_every_rule_and_prints_a_table() {
    let run = tollgate_reading(THREE, &check(&["--times", "2", "--at", "2026-11-15T12:00:00Z"]));
    let expected = "\
time                  answer    rule               remaining    delay   retry after        reset in
2026-11-15T12:00:00Z  admitted  burst                      2        -             -           500ms
                      admits      burst                    2        -             -           500ms
                      admits      hour                    99        -             -              1h
                      admits      trial (shadow)           0        -             -         60000ms
2026-11-15T12:00:00Z  admitted  burst                      1        -             -          1000ms
                      admits      burst                    1        -             -          1000ms
                      admits      hour                    98        -             -              1h
                      refuses     trial (shadow)           0        -       60000ms         60000ms

2 admitted, 0 refused
";
    assert_eq!((run.code, run.stdout.as_str(), run.stderr.as_str()), (Some(0), expected, ""));
}

#[test]
fn check_repeats_at_each_time() {
    let times = ["--at", "2026-11-15T12:00:00Z", "--at", "+0.499999s", "--at", "+0.5s"];
    let run = tollgate_reading(THREE, &check(&[&["--times", "3", "--format", "json"], &times[..]].concat()));
    let decisions: Vec<Value> =
        run.stdout.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect();
    let seen: Vec<_> = decisions
        .iter()
        .map(|decision| {
            let at = decision["at"].as_str().expect("a text").trim_start_matches("2026-11-15T12:00:00");
            (
                at,
                decision["allowed"].as_bool().expect("yes or no"),
                decision["retry_after_ms"].as_u64().expect("a number"),
            )
        })
        .collect();
    let expected = [
        ("Z", true, 0),
        ("Z", true, 0),
        ("Z", true, 0),
        (".499999Z", false, 1),
        (".499999Z", false, 1),
        (".499999Z", false, 1),
        (".5Z", true, 0),
        (".5Z", false, 500),
        (".5Z", false, 500),
    ];
    assert_eq!((run.code, seen), (Some(1), expected.to_vec()));
    assert_eq!(decisions[1]["shadow_rejected"], serde_json::json!(["trial"]));
    assert_eq!(decisions[0]["rules"].as_array().map(Vec::len), Some(3));
}

#[test]
fn check_names_the_list_or_rule_that_decided_without_numbers() {
    for (args, code, name) in [
        (&["action=none"][..], 0, "(no rule matches)"),
        (&["service=healthcheck"], 0, "(bypass list)"),
        (&["api_key=k-stolen"], 1, "(deny list)"),
        (&["action=export"], 1, "exports-per-month"),
    ] {
        let run = tollgate(&[&["check", "--rules", SHOP, "--at", "2026-11-15T12:00:00Z"], args].concat());
        let row = run.stdout.lines().nth(1).unwrap_or_default();
        assert_eq!(run.code, Some(code), "{args:?}");
        assert!(row.contains(&format!("  {name} ")) && row.ends_with(" -"), "{args:?}: {row}");
        let noted = run.stdout.contains("note: exports-per-month refuses without counting");
        assert_eq!(noted, name == "exports-per-month", "{}", run.stdout);
    }
}

#[test]
fn check_and_explain_reject_an_invalid_rules_file() {
    for (command, consequence) in [("check", "no check was made"), ("explain", "nothing is explained")] {
        let run = tollgate(&[command, "--rules", TYPOS, "user=u"]);
        assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""));
        assert!(run.stderr.contains("did you mean `limit`?"), "{}", run.stderr);
        let end = format!("error: invalid rules file {TYPOS}: {consequence}");
        assert!(run.stderr.lines().any(|line| line == end), "{}", run.stderr);
    }
}

#[test]
fn check_and_explain_use_the_same_cost_and_hash_key() {
    let half = CLEAN.replace("missing: refuse,", "missing: refuse, rollout: 50%,");
    let keys = scratch("check-keys");
    std::fs::create_dir_all(&keys).expect("a folder can be made");
    let blocking = |command: &str, number: u8| {
        let file = keys.join(format!("{number}.hex"));
        std::fs::write(&file, format!("{number:02x}").repeat(32)).expect("a file can be written");
        let file = file.to_string_lossy().into_owned();
        let args =
            [command, "--rules", "-", "--hash-key-file", &file, "--format", "json", "--cost", "4", "user=u"];
        let output = tollgate_reading(&half, &args).json();
        let rule = &output["rules"][0];
        (rule["blocking"].as_bool().expect("yes or no"), rule["cost"].clone())
    };
    let mut seen = [false, false];
    for number in 0..16 {
        let (checked, cost) = blocking("check", number);
        assert_eq!(cost, 4);
        let (explained, _) = blocking("explain", number);
        assert_eq!(checked, explained, "key {number}");
        seen[usize::from(checked)] = true;
    }
    assert_eq!(seen, [true, true], "the key decides which subjects are in a rollout");
}

#[test]
fn hash_key_comes_from_a_file_standard_input_or_the_environment() {
    let key = "5e".repeat(32);
    let args = ["explain", "--rules", SHOP, "--format", "json", "action=search", "tenant=t", "user=u"];
    let hash = |run: Run| {
        assert_eq!((run.code, run.json()["hash_key"].as_str()), (Some(0), Some("given")), "{}", run.stderr);
        run.json()["rules"][0]["subject"]["hash_prefix"].clone()
    };
    let read = hash(tollgate_reading(&key, &[&args[..], &["--hash-key-file", "-"]].concat()));
    let mut command = binary(&args);
    command.env("TOLLGATE_HASH_KEY", &key);
    assert_eq!(hash(run(command, "")), read);
    let mut command = binary(&[&args[..], &["--hash-key-file", "-"]].concat());
    command.env("TOLLGATE_HASH_KEY", "5f".repeat(32));
    assert_eq!(hash(run(command, &key)), read, "the file overrides the variable");
}

#[test]
fn hint_follows_the_error_after_a_blank_line() {
    let run = tollgate(&["presets", "lgin-protection"]);
    assert_eq!(
        run.stderr,
        "error: unknown preset `lgin-protection`\n\nhint: did you mean `login-protection`?\n"
    );
    assert_eq!(run.stdout, "");
}

#[test]
fn lint_finds_all_problems_of_all_files() {
    let run = tollgate_reading(CLEAN, &["lint", TYPOS, "-"]);
    assert_eq!((run.code, run.last_line()), (Some(1), "2 files, 3 errors"));
    for place in [":5:5", ":8:", ":10:"] {
        assert!(run.stdout.contains(&format!("--> {TYPOS}{place}")), "{place}: {}", run.stdout);
    }
    assert!(run.stdout.contains("did you mean `limit`?"));
}

#[test]
fn lint_continues_after_an_unreadable_file() {
    let run = tollgate(&["lint", "no/such/file.yaml", TYPOS]);
    assert_eq!((run.code, run.last_line()), (Some(2), "1 file, 3 errors"));
    assert!(run.stderr.contains("no/such/file.yaml"), "{}", run.stderr);
}

#[test]
fn lint_fails_for_warnings_only_with_deny_warnings() {
    let ended = format!(
        "{CLEAN}overrides:\n  - {{ when: {{ plan: pro }}, rule: a, limit: {{ sliding-log: 9/min }}, until: 2001-01-01T00:00:00Z }}\n"
    );
    let note = CLEAN.replace("user, missing: refuse", "ip, missing: refuse");
    for (text, args, code, last) in [
        (CLEAN, &["lint", "-"][..], 0, "1 file, no problems"),
        (CLEAN, &["lint", "--deny-warnings", "-"], 0, "1 file, no problems"),
        (&note, &["lint", "--deny-warnings", "-"], 0, "1 file, 1 note"),
        (&ended, &["lint", "-"], 0, "1 file, 1 warning"),
        (&ended, &["lint", "--deny-warnings", "-"], 1, "1 file, 1 warning"),
        ("version: 2", &["lint", "-"], 1, "1 file, 2 errors"),
    ] {
        let run = tollgate_reading(text, args);
        assert_eq!((run.code, run.last_line()), (Some(code), last), "{args:?} {text}\n{}", run.stdout);
    }
}

#[test]
fn lint_options_add_attributes_and_cluster_checks() {
    let text = format!(
        "{CLEAN}  - {{ id: b, per: all, match: {{ colour: red }}, limit: {{ sliding-log: 5/s }} }}\n"
    );
    let found = |args: &[&str]| {
        let run = tollgate_reading(&text, &[&["lint", "-", "--format", "json"], args].concat());
        let problems = run.json()["problems"].as_array().cloned().unwrap_or_default();
        let has = |code: &str| problems.iter().any(|problem| problem["code"] == code);
        (has("unknown-attribute"), has("several-slots"))
    };
    assert_eq!(found(&[]), (true, false));
    assert_eq!(found(&["--known-attribute", "size,colour"]), (false, false));
    assert_eq!(found(&["--cluster", "--known-attribute", "size"]), (true, true));
}

#[test]
fn lint_formats_print_only_json_or_sarif() {
    let json = tollgate(&["lint", "--format", "json", TYPOS, SHOP]);
    let value = json.json();
    assert_eq!((json.code, json.stderr.as_str()), (Some(1), ""));
    assert_eq!((value["files"].as_u64(), value["errors"].as_u64()), (Some(2), Some(3)));
    let first = &value["problems"][0];
    assert_eq!(
        (first["file"].as_str(), first["line"].as_u64(), first["severity"].as_str(), first["code"].as_str()),
        (Some(TYPOS), Some(5), Some("error"), Some("unknown-key"))
    );
    let sarif = tollgate(&["lint", "--format", "sarif", TYPOS]);
    let value = sarif.json();
    assert_eq!((sarif.code, value["version"].as_str()), (Some(1), Some("2.1.0")));
    assert_eq!(value["runs"][0]["results"].as_array().map(Vec::len), Some(3));
}

const NOW: &str = "2026-11-15T12:00:00Z";

fn explained_at(at: &str, attributes: &[&str]) -> Value {
    let options = ["explain", "--rules", PRECEDENCE, "--format", "json", "--at", at];
    let run = tollgate(&[&options, attributes].concat());
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{attributes:?}");
    run.json()
}

fn explained(attributes: &[&str]) -> Value {
    explained_at(NOW, attributes)
}

fn explained_as_text(at: &str, attributes: &[&str]) -> String {
    let run = tollgate(&[&["explain", "--rules", PRECEDENCE, "--at", at], attributes].concat());
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{attributes:?}");
    run.stdout
}

fn rule<'v>(value: &'v Value, id: &str) -> &'v Value {
    let rules = value["rules"].as_array().expect("rules are listed");
    rules.iter().find(|rule| rule["id"] == id).unwrap_or_else(|| panic!("no rule {id}"))
}

#[test]
fn explain_shows_the_winning_override_and_its_position() {
    const ENDED: &str = "2026-12-01T00:00:00Z";
    for (at, method, more, line, written, why) in [
        (NOW, "method=GET", &["tenant=small"][..], 9, "token-bucket: 10/s, burst: 50", "but is small"),
        (
            NOW,
            "method=GET",
            &["tenant=small", "plan=pro"],
            20,
            "token-bucket: 20/s, burst: 100",
            "instead of",
        ),
        (NOW, "method=GET", &["tenant=acme"], 23, "token-bucket: 50/s, burst: 250", "because it has an end"),
        (
            ENDED,
            "method=GET",
            &["tenant=acme", "plan=pro"],
            22,
            "token-bucket: 40/s, burst: 200",
            "because it comes later in the file",
        ),
        (
            ENDED,
            "method=HEAD",
            &["tenant=acme", "plan=pro"],
            21,
            "token-bucket: 30/s, burst: 150",
            "because it has more conditions (2 instead of 1)",
        ),
    ] {
        let attributes = [&["path=/v1/items/7", "api_key=k", method], more].concat();
        let value = explained_at(at, &attributes);
        let limit = &rule(&value, "api")["limit"];
        assert_eq!(
            (limit["file"].as_str(), limit["line"].as_u64(), limit["written"].as_str()),
            (Some(PRECEDENCE), Some(line), Some(written)),
            "{attributes:?} at {at}"
        );
        let item = &value["answer"]["items"][0];
        let burst = written.rsplit(' ').next().and_then(|burst| burst.parse().ok());
        assert_eq!((item["rule"].as_str(), item["capacity"].as_u64()), (Some("api"), burst));
        let text = explained_as_text(at, &attributes);
        assert!(text.contains(&format!("{written} ({PRECEDENCE}:{line})")) && text.contains(why), "{text}");
    }
}

#[test]
fn explain_shows_why_an_override_does_not_match() {
    let attributes = ["path=/v1/items/7", "method=GET", "user=u", "tenant=acme", "plan=free"];
    let text = explained_as_text("2026-12-01T00:00:00Z", &attributes);
    for why in [
        "23 does not match: it ended at 2026-12-01T00:00:00Z",
        "20 does not match: plan must be pro, but is free",
    ] {
        assert!(text.contains(&format!("{PRECEDENCE}:{why}")), "{text}");
    }
}

#[test]
fn explain_shows_why_a_rule_does_not_match() {
    let value = explained(&["path=/v1/items", "method=POST"]);
    let api = rule(&value, "api");
    assert_eq!(api["applies"], false);
    assert_eq!(api["unmet"][0]["why"], "path must have the form /v1/items/{id}, but is /v1/items");
    assert_eq!(api["unmet"][1]["why"], "method must be GET or HEAD, but is POST");
    assert_eq!(rule(&value, "tokens")["unmet"][0]["why"], "action must start with prompt, but is absent");
    let text = explained_as_text(NOW, &["action=rolled"]);
    assert!(text.contains("forgotten  its mode is off"), "{text}");
}

#[test]
fn explain_shows_the_subject_and_its_hash() {
    let args = ["path=/v1/items/7", "method=GET", "tenant=acme", "user=Jo Doe"];
    let value = explained(&args);
    let subject = &rule(&value, "api")["subject"];
    assert_eq!(subject["parts"][0], serde_json::json!({ "kind": "tenant", "value": "acme" }));
    assert_eq!(subject["parts"][1], serde_json::json!({ "kind": "user", "value": "Jo Doe" }));
    let text = explained_as_text(NOW, &args);
    assert!(text.contains("tenant acme, user \"Jo Doe\" (AA"), "{text}");

    let folder = scratch("hash-key");
    std::fs::create_dir_all(&folder).expect("a folder can be made");
    let key = folder.join("key");
    std::fs::write(&key, "5e".repeat(32) + "\n").expect("a file can be written");
    let keyed = ["--hash-key-file", key.to_str().expect("a path of text"), "--hash-key-id", "3"];
    let other = explained(&[&args[..], &keyed].concat());
    let prefix = |value: &Value| rule(value, "api")["subject"]["hash_prefix"].as_str().map(str::to_owned);
    let (first, second) = (prefix(&value).expect("a hash"), prefix(&other).expect("a hash"));
    assert!(
        first.starts_with("AA") && second.starts_with("AD") && first[2..] != second[2..],
        "{first} {second}"
    );
    assert_eq!((value["hash_key"].as_str(), other["hash_key"].as_str()), (Some("example"), Some("given")));
}

#[test]
fn explain_shows_the_cost_and_its_reason() {
    for (args, id, cost, why) in [
        (&["path=/v1/items/7", "method=HEAD"][..], "api", 2, "because method is HEAD"),
        (&["path=/v1/items/7", "method=GET"], "api", 1, "default because method is GET"),
        (&["action=prompt", "tokens=12"], "tokens", 12, "by the expression int(tokens)"),
        (
            &["action=prompt", "tokens=many"],
            "tokens",
            7,
            "default because the expression failed: int(tokens)",
        ),
        (&["action=rolled", "--cost", "9"], "watched", 9, "from the request"),
    ] {
        let value = explained(args);
        let found = &rule(&value, id)["cost"];
        assert_eq!((found["cost"].as_u64(), found["why"].as_str()), (Some(cost), Some(why)), "{args:?}");
    }
    assert_eq!(explained(&["action=prompt", "user=u"])["answer"]["cost_failed"], 1);
}

#[test]
fn explain_marks_shadow_rules() {
    let value = explained(&["action=rolled", "user=u"]);
    let items = value["answer"]["items"].as_array().expect("a Plan");
    let blocking: Vec<_> =
        items.iter().map(|item| (item["rule"].as_str(), item["blocking"].as_bool())).collect();
    assert_eq!(blocking, [(Some("zero-rollout"), Some(false)), (Some("watched"), Some(false))]);
    assert_eq!(
        rule(&value, "zero-rollout")["rollout"],
        serde_json::json!({ "share": "0%", "included": false })
    );
    let text = explained_as_text(NOW, &["action=rolled", "user=u"]);
    assert!(text.contains("enforce; not in the rollout to 0%, so the rule acts as a shadow"), "{text}");
}

#[test]
fn explain_ends_with_the_answer() {
    for (args, kind, why, text) in [
        (&["api_key=k-stolen"][..], "denied", Value::Null, "Denied by the deny list"),
        (&["service=probe"], "bypassed", Value::Null, "Allowed by the bypass list"),
        (&["action=closed"], "refused", "limit-deny".into(), "Refused by closed: its limit is `deny`"),
        (&["action=named"], "refused", "missing-subject".into(), "Refused by named: its subject is missing"),
        (&["action=skipped"], "plan", Value::Null, "Allowed: every rule that matches is skipped"),
        (&["action=unheard-of"], "plan", Value::Null, "Allowed: no rule matches"),
        (&["action=named", "user=u"], "plan", Value::Null, "named  charge 1 of 3, blocking"),
        (
            &["action=skipped", "user=u", "--cost", "1001"],
            "error",
            Value::Null,
            "cost 1001 exceeds the capacity 1000",
        ),
        (&["action=named", "user=u", "--cost", "4"], "plan", Value::Null, "named  charge 1 of 3, blocking"),
    ] {
        let answer = &explained(args)["answer"];
        assert_eq!((answer["kind"].as_str(), &answer["why"]), (Some(kind), &why), "{args:?}");
        let output = explained_as_text(NOW, args);
        assert!(output.contains(text), "{args:?}: {output}");
    }
    let value = explained(&["api_key=k-stolen"]);
    assert_eq!(value["rules"], serde_json::json!([]), "no rule is checked");
    let denied = &value["answer"];
    assert_eq!((denied["reason"].as_str(), denied["line"].as_u64()), (Some("revoked"), Some(25)));
}

#[test]
fn explain_shows_the_period_of_a_quota() {
    let value = explained(&["action=skipped", "user=u"]);
    let period = &rule(&value, "skipped")["limit"]["period"];
    assert_eq!(period["start"], "2026-10-31T23:00:00Z");
    assert_eq!(period["end"], "2026-11-30T23:00:00Z");
}

#[test]
fn explain_shows_the_position_in_a_preset() {
    let run = tollgate(&["explain", "--rules", SHOP, "action=login", "ip=203.0.113.7"]);
    assert!(run.stdout.contains("sliding-log: 20/10min (preset login-protection:"), "{}", run.stdout);
}

#[test]
fn explain_shows_the_position_among_similar_limits() {
    let one_line = "version: 1\nrules: [{ id: a, per: all, limit: { fixed-window: 1/s } }, \
                    { id: b, per: all, limit: { fixed-window: 2/s } }]\n";
    let alike = "version: 1\nrules:\n  - { id: a, per: all, limit: { fixed-window: 1/s } }\n  \
                 - { id: b, per: all, limit: { fixed-window: 1/s } }\n";
    for (text, a, b) in [
        (one_line, "fixed-window: 1/s (stdin:2)", "fixed-window: 2/s (stdin:2)"),
        (alike, "fixed-window: 1/s (stdin:3)", "fixed-window: 1/s (stdin:4)"),
    ] {
        let output = tollgate_reading(text, &["explain", "--rules", "-"]).stdout;
        let limits: Vec<&str> =
            output.lines().filter_map(|line| line.trim().strip_prefix("limit ")).map(str::trim).collect();
        assert_eq!(limits, [a, b], "{output}");
    }
}

#[test]
fn explain_lists_attributes_that_no_rule_reads() {
    for (attributes, notes) in [
        (&["action=prompt", "tokens=12", "plan=pro", "service=x"][..], &[][..]),
        (
            &["acton=prompt", "token=12"],
            &[
                "no rule reads the attribute `acton`; did you mean `action`?",
                "no rule reads the attribute `token`",
            ],
        ),
    ] {
        assert_eq!(explained(attributes)["notes"], serde_json::json!(notes), "{attributes:?}");
    }
}

#[test]
fn explain_prints_the_problems_of_an_invalid_file() {
    let run = tollgate(&["explain", "--rules", TYPOS, "tenant=acme"]);
    assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""));
    assert!(run.stderr.contains("unknown key `limt`") && run.stderr.contains("\n\nhint: "), "{}", run.stderr);
    let piped = tollgate_reading(CLEAN, &["explain", "--rules", "-", "user=u"]);
    assert!(piped.stdout.contains("sliding-log: 5/min (stdin:3)"), "{}", piped.stdout);
}

#[test]
fn try_accepts_a_limit_with_or_without_braces() {
    let plain = tollgate(&["try", "token-bucket: 2/s, burst: 5"]);
    let braces = tollgate(&["try", "{ token-bucket: 2/s, burst: 5 }"]);
    let words = tollgate(&["try", "token-bucket:", "2/s,", "burst:", "5"]);
    assert_eq!(plain.last_line(), "6 admitted, 2 refused by token-bucket: 2/s, burst: 5");
    assert_eq!(plain.stdout, words.stdout);
    let rows = |run: &Run| run.stdout.lines().take(9).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(rows(&plain), rows(&braces));
}

#[test]
fn try_supports_every_algorithm() {
    for (limit, every, admitted, code) in [
        ("fixed-window: 3/h", "1s", 3, 1),
        ("sliding-window: 4/min, buckets: 6, counting: interpolated", "1s", 4, 1),
        ("sliding-log: 2/10s", "4s", 6, 1),
        ("token-bucket: 1/s", "1s", 8, 0),
        ("leaky-bucket: 1/h, capacity: 5", "1s", 5, 1),
        ("leaky-bucket: 1/h, queue: 5", "1s", 6, 1),
        ("concurrency: 2, lease: 4s", "1s", 4, 1),
        ("quota: 3/day, zone: Europe/Berlin", "4h", 5, 1),
        ("quota: 3/7d, period: rolling", "1d", 4, 1),
        ("meter: 6", "1d", 6, 1),
        ("penalty: 1s, free: 2, factor: 10", "1s", 4, 1),
        ("deny", "1s", 0, 1),
    ] {
        let run = tollgate(&["try", limit, "--every", every]);
        let refused = 8 - admitted;
        let expected = match limit {
            "deny" => "`deny` refuses every request; there are no numbers to print.".to_owned(),
            _ => format!("{admitted} admitted, {refused} refused by {limit}"),
        };
        assert_eq!((run.last_line(), run.code), (expected.as_str(), Some(code)), "{}", run.stdout);
    }
}

#[test]
fn try_prints_the_problems_of_an_invalid_limit() {
    for (limit, message) in [
        ("token-bukcet: 2/s", "did you mean `token-bucket`?"),
        ("token-bucket: 2/parsec", "2/parsec"),
        ("token-bucket", "expected a rate"),
        ("10/s", "name an algorithm: `limit: { token-bucket: 10/s }` allows bursts"),
        ("gcra: 10/s", "did you mean `token-bucket`?"),
        ("leaky-bucket: 1/s", "requires a `capacity` or a `queue`"),
        ("{ token-bucket: 2/s", "error["),
        ("", "error["),
    ] {
        let run = tollgate(&["try", limit]);
        assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""), "{limit}");
        assert!(run.stderr.contains(message) && run.stderr.contains("\n\nhint: "), "{limit}: {}", run.stderr);
    }
}

#[test]
fn estimate_adds_up_and_lists_rules_without_state() {
    let all = "examples/rules/all-algorithms.yaml";
    let of = |args: &[&str]| {
        tollgate(&[&["estimate", "--rules", all, "--format", "json", "--subjects", "1000"], args].concat())
            .json()
    };
    let rule = |value: &Value, id: &str| {
        let rules = value["rules"].as_array().expect("a list");
        rules.iter().find(|rule| rule["rule"] == id).cloned().unwrap_or_else(|| panic!("no {id}"))
    };
    let number = |value: &Value| value.as_u64().expect("a number");
    let value = of(&[]);
    for rule in value["rules"].as_array().expect("a list") {
        let subject = &rule["subject"];
        let parts = ["key_bytes", "value_bytes", "overhead_bytes", "expiry_bytes"];
        let sum: u64 = parts.iter().map(|part| number(&subject[part])).sum();
        assert_eq!(sum, number(&subject["bytes"]), "{rule}");
        assert_eq!(sum * number(&rule["subjects"]), number(&rule["total_bytes"]), "{rule}");
    }
    // The key is tg:1:example:{22}:searches:22, and the state has four words.
    let searches = rule(&value, "searches");
    assert_eq!(
        (number(&searches["subject"]["key_bytes"]), number(&searches["subject"]["value_bytes"])),
        (69, 32)
    );
    // `per: all` has one subject, and an override may count where the rule denies.
    assert_eq!((&rule(&value, "retired")["subjects"], &value["keys"]), (&1.into(), &12_001.into()));
    let more = of(&["--subjects", "searches=5000", "--prefix", "shop:"]);
    assert_eq!(rule(&more, "searches")["subjects"], 5_000);
    assert_eq!(number(&rule(&more, "searches")["subject"]["key_bytes"]), 74);
    assert_eq!(rule(&more, "webhooks")["subjects"], 1_000);
    let growth = rule(&value, "running-exports")["growth"].clone();
    assert_eq!((&growth["bytes_each"], &growth["at_most"]), (&208.into(), &3.into()));
    assert!(number(&value["worst_case_bytes"]) > number(&value["total_bytes"]));
    assert!(number(&of(&["--engine", "valkey"])["total_bytes"]) < number(&value["total_bytes"]));

    let off = CLEAN.replace("id: a,", "id: a, mode: 'off',");
    let text = tollgate_reading(&off, &["estimate", "--rules", "-", "--subjects", "5"]).stdout;
    assert!(text.contains("no state: its mode is off"), "{text}");
}

#[test]
fn guide_prints_only_the_wanted_questions() {
    let limits = |args: &[&str]| {
        let run = tollgate(args);
        assert_eq!(run.code, Some(0));
        run.stdout.lines().filter(|line| line.trim_start().starts_with("limit: {")).count()
    };
    assert_eq!(limits(&["guide"]), 10);
    assert_eq!(limits(&["guide", "--want", "rate"]), 6);
    assert_eq!(limits(&["guide", "--want", "exact"]), 2);
    let quota = tollgate(&["guide", "--want", "quota"]);
    assert!(quota.stdout.contains("limit: { quota: ") && !quota.stdout.contains("limit: { fixed-window: "));
}

#[test]
fn every_preset_is_listed_and_valid() {
    let list = tollgate(&["presets"]);
    let names: Vec<&str> =
        list.stdout.lines().map_while(|line| line.split_once("  ")).map(|(name, _)| name).collect();
    assert_eq!(names.len(), tollgate::rules::presets::ALL.len(), "{}", list.stdout);
    for name in names {
        let printed = tollgate(&["presets", name]);
        assert!(printed.stdout.starts_with("# "), "{name}: {}", printed.stdout);
        let linted = tollgate_reading(&printed.stdout, &["lint", "-"]);
        assert_eq!((printed.code, linted.code), (Some(0), Some(0)), "{name}: {}", linted.stdout);
    }
}

#[test]
fn schema_is_json_and_its_help_explains_editors() {
    let schema = tollgate(&["schema"]).json();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    assert!(schema["properties"]["rules"].is_object());
    assert!(tollgate(&["schema", "--help"]).stdout.contains("# yaml-language-server: $schema="));
}

#[test]
fn completions_of_every_shell_contain_every_command() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let run = tollgate(&["completions", shell]);
        assert_eq!(run.code, Some(0), "{shell}");
        for command in COMMANDS {
            assert!(run.stdout.contains(command), "{shell} {command}");
        }
        assert!(run.stdout.contains("deny-warnings"), "{shell}");
    }
}

#[test]
fn man_writes_a_page_for_every_command() {
    let page = tollgate(&["man"]);
    assert!(page.code == Some(0) && page.stdout.contains(".TH tollgate 1"), "{}", page.stdout);
    let folder = scratch("man").join("man1");
    let run = tollgate(&["man", "--out", folder.to_str().expect("a path of text")]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    for command in COMMANDS {
        let page = std::fs::read_to_string(folder.join(format!("tollgate-{command}.1"))).expect(command);
        assert!(page.contains(".SH NAME") && page.contains("Exit codes:"), "{command}");
    }
    // And one for `tollgate`, one for each format of `import`, and those of `ledger` and `database`.
    assert_eq!(std::fs::read_dir(&folder).expect("pages were written").count(), COMMANDS.len() + 3 + 8);
}

#[test]
fn colours_need_a_terminal_and_respect_no_color() {
    let cases: [&[&str]; 4] = [
        &["lint", TYPOS],
        &["explain", "--rules", TYPOS],
        &["explain", "--rules", SHOP],
        &["try", "fixed-window: 3/h"],
    ];
    for args in cases {
        let coloured = |variables: &[(&str, &str)]| {
            let mut command = binary(args);
            command.envs(variables.iter().copied());
            let run = run(command, "");
            (run.stdout + &run.stderr).contains('\u{1b}')
        };
        assert!(!coloured(&[]), "{args:?} in a pipe");
        assert!(coloured(&[("CLICOLOR_FORCE", "1")]), "{args:?} when forced");
        assert!(!coloured(&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]), "{args:?} with NO_COLOR");
    }
}

#[test]
fn closed_standard_output_exits_with_141_and_no_error() {
    let mut child = binary(&["try", "fixed-window: 3/h", "--times", "100000"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    drop(child.stdout.take());
    let mut stderr = String::new();
    child.stderr.take().expect("it is piped").read_to_string(&mut stderr).expect("it prints text");
    assert_eq!((child.wait().expect("the binary ends").code(), stderr.as_str()), (Some(141), ""));
}

#[test]
fn token_is_printed_once_and_its_line_contains_only_a_digest() {
    let folder = scratch("token");
    std::fs::create_dir_all(&folder).expect("a folder can be made");
    let first = tollgate(&["token", "--name", "ci", "--scopes", "check,read,check"]);
    let second = tollgate(&["token"]);
    assert_eq!((first.code, second.code), (Some(0), Some(0)), "{}{}", first.stderr, second.stderr);
    let token = first.stdout.trim_end();
    assert!(token.starts_with("tg_") && token.len() == 67, "256 bits: {token}");
    assert_ne!(first.stdout, second.stdout);
    assert!(!first.stderr.contains(token) && first.stderr.contains("name: ci"), "{}", first.stderr);
    assert!(first.stderr.contains("scopes: [check, read]"), "{}", first.stderr);
    assert!(second.stderr.contains("name: client") && second.stderr.contains("scopes: [check] }"));

    let file = folder.join("tollgate.yaml");
    std::fs::write(&file, &first.stderr).expect("a file can be written");
    let file = file.to_str().expect("a path is text");
    let config = tollgate(&["config", "--config", file, "--http", "0.0.0.0:8080", "--format", "json"]);
    assert_eq!(config.code, Some(0), "the printed line is a valid configuration: {}", config.stderr);
    let settings = config.json();
    let of = |name: &str| {
        let all = settings["settings"].as_array().expect("a list").iter();
        all.clone().find(|setting| setting["name"] == name).cloned().expect("it is listed")
    };
    assert_eq!(of("tokens")["value"], "ci (check, read)");
    assert_eq!((&of("tokens")["from"], &of("tokens")["line"]), (&"file".into(), &2.into()));
    assert_eq!((&of("http")["from"], &of("http")["flag"]), (&"flag".into(), &"--http".into()));
    assert_eq!((&of("anonymous")["value"], &of("anonymous")["from"]), (&"none".into(), &"default".into()));
}

#[test]
fn config_shows_the_origin_of_every_setting() {
    let folder = scratch("settings");
    std::fs::create_dir_all(&folder).expect("a folder can be made");
    let file = folder.join("tollgate.yaml");
    std::fs::write(&file, "shutdown_timeout: 1s\nthreads: 5\nconnections_max: 7\n")
        .expect("a file can be written");
    let mut command = binary(&["config", "--shutdown-timeout", "3s"]);
    command.env("TOLLGATE_CONFIG", &file).env("TOLLGATE_SHUTDOWN_TIMEOUT", "2s").env("TOLLGATE_THREADS", "6");
    command.env("TOLLGATE_STORE_PASSWORD", "s3cr3t");
    let run = run(command, "");
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
    let line = |name: &str| {
        let line = run.stdout.lines().find(|line| line.split_whitespace().next() == Some(name));
        line.map(|line| line.split_whitespace().skip(1).map(str::to_owned).collect::<Vec<_>>())
            .expect("it is listed")
    };
    assert_eq!(line("shutdown_timeout"), ["3s", "--shutdown-timeout"]);
    assert_eq!(line("threads"), ["6", "TOLLGATE_THREADS"]);
    assert_eq!(line("connections_max"), ["7", &format!("{}:3", file.display())]);
    assert_eq!(line("http"), ["127.0.0.1:8080", "default"]);
    assert_eq!(line("store_password"), ["(secret)", "TOLLGATE_STORE_PASSWORD"]);
    assert!(!run.stdout.contains("s3cr3t"));
}

#[test]
fn old_names_of_flags_are_accepted_with_one_warning_and_not_listed() {
    for (args, old, new) in [
        (&["config", "--grace", "7s"][..], "--grace", "--shutdown-timeout"),
        (&["estimate", "--rules", SHOP, "--subjects", "7", "--server", "valkey"], "--server", "--engine"),
    ] {
        let run = tollgate(args);
        assert_eq!(run.code, Some(0), "{args:?}: {}", run.stderr);
        let warning = format!("{old} was renamed to {new}\n");
        assert!(
            run.stderr.starts_with("warning") && run.stderr.contains(&warning),
            "{args:?}: {}",
            run.stderr
        );
        assert_eq!(run.stderr.matches("warning").count(), 1, "{args:?}: {}", run.stderr);
        let replaced = args.iter().map(|&arg| if arg == old { new } else { arg }).collect::<Vec<_>>();
        let renamed = tollgate(&replaced);
        assert_eq!((renamed.code, renamed.stderr.as_str()), (Some(0), ""), "{replaced:?}");
        assert_eq!(renamed.stdout.replace(new, old), run.stdout, "{args:?}");
        let help = tollgate(&[args[0], "--help"]).stdout;
        assert!(help.contains(new) && !help.contains(&format!("{old} ")), "{help}");
    }
}

#[test]
fn serve_and_config_ignore_the_variables_of_client_commands() {
    // `serve` reads its configuration, and fails only because of the store.
    let serve = [
        "serve",
        "--require-store",
        "--store",
        "redis://127.0.0.1:1",
        "--http",
        "127.0.0.1:0",
        "--resp",
        "off",
    ];
    for (args, code) in [(&["config"][..], 0), (&serve, 3)] {
        let mut command = binary(args);
        command.env("TOLLGATE_SERVER", "http://localhost:8080").env("TOLLGATE_TOKEN", "tg_00");
        command.env("TOLLGATE_TOKEN_FILE", "no/such/file").env("TOLLGATE_HASH_KEY", "5e".repeat(32));
        let run = run(command, "");
        assert_eq!(run.code, Some(code), "{args:?}: {}", run.stderr);
    }
}
