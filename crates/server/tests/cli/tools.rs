//! `tollgate try`, `estimate`, `guide` and `presets`.

use serde_json::Value;

use crate::{CLEAN, Run, tollgate, tollgate_reading};

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
