//! Sends every request that the HTTP page shows, and compares the response with the page.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::start;

/// Members whose numbers differ from run to run.
const VARYING: [&str; 5] = ["retry_after_ms", "reset_at_ms", "expires_at_ms", "ttl_ms", "period_ms"];

/// The fenced blocks of a page, each with its language.
fn blocks(page: &str) -> Vec<(&str, String)> {
    let mut blocks: Vec<(&str, String)> = Vec::new();
    let mut is_open = false;
    for line in page.lines() {
        match (line.strip_prefix("```"), is_open) {
            (Some(kind), false) => {
                blocks.push((kind, String::new()));
                is_open = true;
            }
            (Some(_), true) => is_open = false,
            (None, true) => {
                let (_, text) = blocks.last_mut().expect("one is open");
                text.push_str(line);
                text.push('\n');
            }
            (None, false) => (),
        }
    }
    blocks
}

/// Replaces numbers, receipts and references that differ from run to run.
fn mask(mut value: Value) -> Value {
    match &mut value {
        Value::Object(members) => {
            for (name, member) in members.iter_mut() {
                *member = match member.take() {
                    Value::Number(number) if VARYING.contains(&name.as_str()) && number != 0.into() => {
                        "a number".into()
                    }
                    Value::String(_) if name == "receipt" => "a receipt".into(),
                    Value::String(_) if name == "ref" => "a reference".into(),
                    other => mask(other),
                };
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| *item = mask(item.take())),
        _ => (),
    }
    value
}

/// A header field without its seconds, which count down.
fn untimed(line: &str) -> &str {
    let end = line.find(";t=").or_else(|| line.starts_with("retry-after: ").then_some("retry-after: ".len()));
    &line[..end.unwrap_or(line.len())]
}

#[test]
fn every_request_of_the_http_page_is_answered_as_the_page_shows() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("docs/reference/http.md")).expect("the page is there");
    let blocks = blocks(&page);
    let (_, rules) = blocks.iter().find(|(kind, _)| *kind == "yaml").expect("the page shows its rules");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("rules.yaml");
    std::fs::write(&file, rules).expect("a file can be written");
    let serving = start(&["--rules", file.to_str().expect("a path of text")]);
    let mut receipt = String::new();
    let mut count = 0;
    for pair in blocks.windows(2).filter(|pair| pair[0].0 == "shell") {
        let [(_, command), (kind, shown)] = pair else { continue };
        let command = command.replace("localhost:8080", &serving.http.to_string());
        let run =
            Command::new("sh").args(["-c", &command]).env("RECEIPT", &receipt).output().expect("a shell");
        assert!(run.status.success(), "{command}: {run:?}");
        let answer = String::from_utf8(run.stdout).expect("text");
        if *kind == "http" {
            for line in shown.lines() {
                let is_there = answer.lines().any(|found| untimed(found) == untimed(line));
                assert!(is_there, "{command}\n{line}\nis not in\n{answer}");
            }
        } else {
            let read = |text: &str| {
                serde_json::from_str::<Value>(text).unwrap_or_else(|error| panic!("{error}: {text}"))
            };
            let found = read(&answer);
            if let Some(new) = found["receipt"].as_str() {
                receipt = new.to_owned();
            }
            assert_eq!(mask(found), mask(read(shown)), "{command}");
        }
        count += 1;
    }
    assert!(count > 8, "{count} requests");
}
