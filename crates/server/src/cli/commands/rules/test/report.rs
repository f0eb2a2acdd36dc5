//! Prints the results of tests, for people and for programs.

use serde_json::{Value, json};
use tollgate::RuleDecision;
use tollgate::core::Time;
use tollgate_document::{Problems, Source};

use super::FileResult;
use super::run::{Difference, StepResult, TestResult, wait};
use crate::cli::terminal::{DIM, GREEN, RED, STRONG, duration, quoted_unless_plain};
use crate::text::escape_control;

/// Formats one line per test, the failing steps of each, and the totals.
pub(super) fn text(files: &[FileResult]) -> String {
    let mut out = String::new();
    for FileResult { source, tests } in files {
        for test in tests {
            let (word, style) = if test.passed() { ("ok", GREEN) } else { ("FAILED", RED) };
            let place = format!("{}:{}", escape_control(source.name()), test.line);
            out += &format!(
                "{style}{word:<6}{style:#}  {STRONG}{}{STRONG:#}  {DIM}{place}{DIM:#}\n",
                escape_control(&test.name)
            );
            for (index, step) in
                test.steps.iter().enumerate().filter(|(_, step)| !step.differences.is_empty())
            {
                out += &failed_step(index + 1, step, test.start);
            }
        }
    }
    let (tests, failed) = count(files);
    let failed = if failed == 0 { "all passed".to_owned() } else { format!("{failed} failed") };
    match tests {
        0 => out,
        1 => out + &format!("1 test, {failed}\n"),
        _ => out + &format!("{tests} tests, {failed}\n"),
    }
}

fn failed_step(number: usize, result: &StepResult, start: Time) -> String {
    let StepResult { step, observed, differences } = result;
    let times = if step.times == 1 { "1 request".to_owned() } else { format!("{} requests", step.times) };
    let attributes: String = step
        .attributes
        .iter()
        .map(|(name, value)| format!(" {}={}", escape_control(name), quoted_unless_plain(value)))
        .collect();
    let after = duration((step.at - start).us() / 1_000);
    let mut out = format!("  step {number} (line {}) at {after}: {times}{attributes}\n", step.line);
    for Difference { key, expected, got } in differences {
        let (expected, got) = (escape_control(expected), escape_control(got));
        out += &format!("    {key}: expected {GREEN}{expected}{GREEN:#}, got {RED}{got}{RED:#}\n");
    }
    let Some(last) = &observed.last else { return out };
    let answer = if last.allowed() { "allowed" } else { "refused" };
    out += &format!("    the last request was {answer}");
    let rules: Vec<_> = last.rules().map(|rule| rule_numbers(&rule)).collect();
    if rules.is_empty() {
        let deciders: Vec<_> = observed.deciders.iter().map(|decider| decider.name()).collect();
        out += &format!(": {}\n", deciders.join(", "));
    } else {
        out += "\n";
    }
    rules.iter().for_each(|rule| out += &format!("      {rule}\n"));
    out
}

/// `search-per-key refuses: limit 5, remaining 0, retry after 500ms, reset in 2500ms`.
fn rule_numbers(rule: &RuleDecision<'_>) -> String {
    let answer = match (rule.allowed(), rule.blocking()) {
        (true, true) => "admits",
        (false, true) => "refuses",
        (true, false) => "admits (shadow)",
        (false, false) => "would refuse (shadow)",
    };
    let numbers = match (rule.limit(), rule.outcome().numbers) {
        (Some(limit), Some(numbers)) => {
            let retry = if rule.allowed() {
                String::new()
            } else {
                format!(", retry after {}", wait(numbers.retry_after))
            };
            let reset = duration(numbers.reset_after_ms);
            format!(": limit {limit}, remaining {}{retry}, reset in {reset}", numbers.remaining)
        }
        _ => String::new(),
    };
    format!("{} {answer}{numbers}", rule.id())
}

/// Formats everything as one JSON object.
pub(super) fn json(files: &[FileResult], invalid: &[(Source, Problems)]) -> String {
    let (tests, failed) = count(files);
    let problems: Vec<Value> = invalid
        .iter()
        .flat_map(|(source, problems)| match problems.to_json(source) {
            Value::Array(list) => list,
            other => vec![other],
        })
        .collect();
    let results: Vec<Value> = files
        .iter()
        .flat_map(|file| file.tests.iter().map(|test| test_json(file.source.name(), test)))
        .collect();
    let all = json!({ "tests": tests, "failed": failed, "problems": problems, "results": results });
    format!("{all:#}\n")
}

fn test_json(file: &str, test: &TestResult) -> Value {
    let steps: Vec<Value> = test.steps.iter().map(|step| step_json(step, test.start)).collect();
    json!({ "file": file, "line": test.line, "name": test.name, "passed": test.passed(), "steps": steps })
}

fn step_json(result: &StepResult, start: Time) -> Value {
    let StepResult { step, observed, differences } = result;
    let differences: Vec<Value> = differences
        .iter()
        .map(|Difference { key, expected, got }| json!({ "key": key, "expected": expected, "got": got }))
        .collect();
    let rules: Vec<Value> =
        observed.last.iter().flat_map(|last| last.rules()).map(|rule| rule_json(&rule)).collect();
    json!({
        "line": step.line,
        "at_ms": (step.at - start).us() / 1_000,
        "times": step.times,
        "allowed": observed.allowed,
        "shadow_refused": observed.shadow_refused,
        "passed": differences.is_empty(),
        "differences": differences,
        "rules": rules,
    })
}

/// The numbers of one rule after the last request of a step.
fn rule_json(rule: &RuleDecision<'_>) -> Value {
    let numbers = rule.outcome().numbers;
    json!({
        "rule": rule.id(),
        "allowed": rule.allowed(),
        "blocking": rule.blocking(),
        "limit": rule.limit(),
        "remaining": numbers.map(|numbers| numbers.remaining),
        "retry_after": numbers.filter(|_| !rule.allowed()).map(|numbers| wait(numbers.retry_after)),
        "reset_after_ms": numbers.map(|numbers| numbers.reset_after_ms),
    })
}

/// The numbers of tests and of failed tests.
fn count(files: &[FileResult]) -> (usize, usize) {
    let tests = || files.iter().flat_map(|file| &file.tests);
    (tests().count(), tests().filter(|test| !test.passed()).count())
}
