//! `tollgate explain`: why a request gets its answer.

use serde_json::Value;

use crate::{CLEAN, NOW, PRECEDENCE, SHOP, TYPOS, scratch, tollgate, tollgate_reading};

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
