//! `tollgate check`: charges, times, hash keys.

use serde_json::Value;

use crate::{CLEAN, Run, SHOP, TYPOS, binary, run, scratch, tollgate, tollgate_reading};

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
