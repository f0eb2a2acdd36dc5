//! The text, JSON and SARIF output for a broken file.

use serde_json::json;

use super::*;
use crate::example::{problems, rendered};
use crate::problem::PROBLEMS_MAX;

#[test]
fn all_problems_of_a_file_are_rendered() {
    let text = "\
version: 2
rules:
  - id: Search
    limit: { token-bucket: 100, brust: none }
    mode: enforced
    per: []
    sticky: yes
  - limit:
  - deny
";
    let expected = r#"error[number-out-of-range]: `version`: found the number 2, expected the number 1
 --> rules.yaml:1:10
  |
1 | version: 2
  |          ^

error[bad-text]: `id`: invalid name "Search"; use a-z, 0-9 and -
 --> rules.yaml:3:9
  |
3 |   - id: Search
  |         ^^^^^^

error[wrong-type]: `token-bucket`: found the number 100, expected a rate like 100/min
 --> rules.yaml:4:28
  |
4 |     limit: { token-bucket: 100, brust: none }
  |                            ^^^
  |
  = help: for example `2/s` or `100/min`

error[unknown-key]: unknown key `brust`
 --> rules.yaml:4:33
  |
4 |     limit: { token-bucket: 100, brust: none }
  |                                 ^^^^^ did you mean `burst`?
  |
  = help: allowed keys in a token bucket: `token-bucket` and `burst`

error[bad-choice]: `mode`: found "enforced", expected `enforce` or `shadow`
 --> rules.yaml:5:11
  |
5 |     mode: enforced
  |           ^^^^^^^^ did you mean `enforce`?

error[too-few-items]: `per`: found 0 items, expected at least 1
 --> rules.yaml:6:10
  |
6 |     per: []
  |          ^^

error[wrong-type]: `sticky`: found "yes", expected `true` or `false`
 --> rules.yaml:7:13
  |
7 |     sticky: yes
  |             ^^^
  |
  = help: write `true`

error[wrong-type]: `limit`: found no value, expected a limit
 --> rules.yaml:8:5
  |
8 |   - limit:
  |     ^^^^^

error[missing-key]: missing key `id` in a rule
 --> rules.yaml:8:5
  |
8 |   - limit:
  |     ^^^^^ `id` is required here
  |
  = help: The name of the rule.

error[wrong-type]: `rules`, item 3: found "deny", expected a rule, a map with `id` and `limit`
 --> rules.yaml:9:5
  |
9 |   - deny
  |     ^^^^

"#;
    assert_eq!(rendered(text), expected);
}

#[test]
fn both_spans_of_a_problem_are_rendered() {
    let near = "version: 1\nrules: []\nversion: 1\n";
    let expected = r#"error[duplicate-key]: duplicate key "version"
 --> rules.yaml:3:1
  |
1 | version: 1
  | ------- first here
2 | rules: []
3 | version: 1
  | ^^^^^^^ repeated here

"#;
    assert_eq!(rendered(near), expected);

    let far = format!("version: 1\nrules: []{}version: 1\n", "\n".repeat(100));
    let expected = r#"error[duplicate-key]: duplicate key "version"
   --> rules.yaml:102:1
    |
102 | version: 1
    | ^^^^^^^ repeated here
    |
   ::: rules.yaml:1:1
    |
  1 | version: 1
    | ------- first here

"#;
    assert_eq!(rendered(&far), expected);
}

#[test]
fn a_syntax_error_has_a_fix() {
    let text = "version: 1\nrules:\n  - { id: übung, match: { path: /v1/items/{id} } }\n";
    let expected = r#"error[syntax]: expected `,` or `}`
 --> rules.yaml:3:43
  |
3 |   - { id: übung, match: { path: /v1/items/{id} } }
  |                                           ^
  |
  = help: inside `{ }` and `[ ]`, quote text that contains one of `{ } [ ] ,`, like "/items/{id}"

"#;
    // The column counts characters; in bytes it would be 44.
    assert_eq!(rendered(text), expected);
}

#[test]
fn a_line_too_long_to_print_is_referenced_by_position() {
    let blanks = " ".repeat(2_000);
    let text = format!("version: 1\nrules: [ {blanks}{{ id: a, limt: deny }} ]\n");
    let expected = "\
error[unknown-key]: unknown key `limt`
--> rules.yaml:2:2019
 = note: did you mean `limit`?
 = help: allowed keys in a rule: `id`, `limit`, `per`, `match`, `mode`, `sticky` and `labels`

";
    assert_eq!(rendered(&text), expected);
}

#[test]
fn plain_text_has_no_colour_codes() {
    let source = Source::new("rules.yaml", b"version: 1\nrules: [\x7f]");
    let problems = problems(&source);
    assert!(problems.render(&source, Colour::Ansi).contains("\x1b["));
    assert!(!problems.render(&source, Colour::Plain).contains('\x1b'));
    assert!(
        !problems.render(&source, Colour::Ansi).contains('\x7f'),
        "control characters of the file are not printed"
    );
}

#[test]
fn json_has_every_field() {
    let source =
        Source::new("rules.yaml", "version: 1\nrules:\n  - { id: ä, limit: deny, id: b }\n".as_bytes());
    let expected = json!([
        {
            "file": "rules.yaml", "line": 3, "column": 11, "end": { "line": 3, "column": 12 }, "severity": "error",
            "code": "bad-text", "message": "`id`: invalid name \"ä\"; use a-z, 0-9 and -", "label": "",
            "help": null, "related": [],
        },
        {
            "file": "rules.yaml", "line": 3, "column": 27, "end": { "line": 3, "column": 29 }, "severity": "error",
            "code": "duplicate-key", "message": "duplicate key \"id\"", "label": "repeated here",
            "help": null,
            "related": [{ "file": "rules.yaml", "line": 3, "column": 7, "end": { "line": 3, "column": 9 }, "label": "first here" }],
        },
    ]);
    assert_eq!(problems(&source).to_json(&source), expected);
}

#[test]
fn sarif_has_one_run_with_the_results_of_all_files() {
    let good = Source::new("good.yaml", b"version: 1\nrules: []\n");
    let bad = Source::new("/etc/my rules.yaml", b"version: 1\nrules: []\nrules: []\nlimt: 1\n");
    let (none, some) = (problems(&good), problems(&bad));
    let location = |line: u64, end: u64| {
        json!({
            "artifactLocation": { "uri": "file:///etc/my%20rules.yaml" },
            "region": { "startLine": line, "startColumn": 1, "endLine": line, "endColumn": end },
        })
    };
    let expected = json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "tollgate",
                "version": env!("CARGO_PKG_VERSION"),
                "rules": [{ "id": "duplicate-key" }, { "id": "unknown-key" }],
            } },
            "columnKind": "unicodeCodePoints",
            "results": [
                {
                    "ruleId": "duplicate-key",
                    "level": "error",
                    "message": { "text": "duplicate key \"rules\"" },
                    "locations": [{ "physicalLocation": location(3, 6), "message": { "text": "repeated here" } }],
                    "relatedLocations": [
                        { "physicalLocation": location(2, 6), "message": { "text": "first here" } },
                    ],
                },
                {
                    "ruleId": "unknown-key",
                    "level": "error",
                    "message": { "text": "unknown key `limt`\n\nallowed keys in a rules file: `version` and `rules`" },
                    "locations": [{ "physicalLocation": location(4, 5) }],
                    "relatedLocations": [],
                },
            ],
        }],
    });
    assert_eq!(sarif([(&good, &none), (&bad, &some)]), expected);
}

#[test]
fn problems_beyond_the_maximum_are_counted() {
    let text = format!("version: 1\nrules:\n{}", "- x\n".repeat(PROBLEMS_MAX + 7));
    let source = Source::new("rules.yaml", text.as_bytes());
    let problems = problems(&source);
    let expected = "note[too-many-problems]: 7 more problems are not listed\n";
    assert!(problems.render(&source, Colour::Plain).contains(expected));
    let json = problems.to_json(&source);
    assert_eq!(json[PROBLEMS_MAX]["code"], "too-many-problems");
}
