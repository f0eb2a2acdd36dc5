//! The shape of a test file. The check, its messages, the reference page and the JSON Schema are generated from it.

use std::sync::LazyLock;

use tollgate::core::EXACT_MAX;
use tollgate::shorthand;
use tollgate_document::Shape;
use tollgate_document::shape::{choice, fields, list, map_of, number, one_of, text};

use super::file::StepTime;
use crate::cli::request_args::instant;

/// Maximum number of requests of one step: a mistyped number must not occupy a CI job for hours.
const TIMES_MAX: u64 = 1_000_000;

/// The shape of a test file.
pub(crate) fn file_shape() -> &'static Shape {
    static SHAPE: LazyLock<Shape> = LazyLock::new(|| {
        fields("a test file")
            .optional(
                "rules",
                rules_file(),
                "The rules file of tests that name none, relative to the folder of this file.",
            )
            .required("tests", list(test()).at_least(1), "The tests. Each starts with an empty store.")
            .into()
    });
    &SHAPE
}

fn test() -> Shape {
    fields("a test")
        .required("name", text("a name"), "What the test shows. It is printed with the result.")
        .optional(
            "rules",
            rules_file(),
            "The rules file, relative to the folder of this file. Default: `rules` of the file.",
        )
        .optional(
            "start",
            text("an instant like 2026-01-01T00:00:00Z")
                .checked(|text| instant(text).map(drop))
                .examples(&["2026-11-30T22:59:59Z"]),
            "The time at which the clock starts. Default: 2026-01-01T00:00:00Z.",
        )
        .optional("request", attributes(), "The attributes of every request. Default: none.")
        .required("steps", list(step()).at_least(1), "Requests at one time, and what is expected.")
        .into()
}

fn step() -> Shape {
    fields("a step")
        .optional(
            "at",
            text("a time like 5s, +5s or 2026-12-01T00:00:00Z")
                .checked(|text| StepTime::parse(text).map(drop))
                .examples(&["5s", "+500ms", "2026-12-01T00:00:00Z"]),
            "The time of the requests: a duration since `start`, with a plus since the previous step, or an instant. \
             Default: the time of the previous step.",
        )
        .optional("request", attributes(), "Attributes in addition to those of the test, or in their place.")
        .optional("cost", number(0, EXACT_MAX), "The cost of each request. Default: as a request without a cost.")
        .optional("times", number(1, TIMES_MAX), "The number of requests. Default: 1.")
        .required("allowed", number(0, TIMES_MAX), "How many of them are allowed.")
        .optional(
            "rule",
            text("the id of a rule"),
            "The rule that decides: each refusal, or the last request if all are allowed.",
        )
        .optional(
            "by",
            choice(&[
                ("deny", "The deny list."),
                ("bypass", "The bypass list."),
                ("unmatched", "No rule counts the request."),
            ]),
            "What decides instead of a rule.",
        )
        .optional("remaining", number(0, EXACT_MAX), "What remains after the last request, under the rule that decides.")
        .optional(
            "retry_after",
            one_of("a wait")
                .or("No wait helps.", choice(&[("never", "The request is never admitted.")]))
                .or("A duration.", text("a duration like 500ms").checked(check_span).examples(&["500ms", "30s"])),
            "The wait that the last refusal states, rounded up to milliseconds.",
        )
        .optional(
            "shadow_refused",
            number(0, TIMES_MAX),
            "How many of the requests a shadow rule would have refused.",
        )
        .into()
}

fn rules_file() -> Shape {
    text("the path of a rules file").into()
}

fn attributes() -> Shape {
    map_of("attributes and their values", text("the name of an attribute"), text("a value")).into()
}

fn check_span(text: &str) -> Result<(), String> {
    shorthand::span(text).map(drop).map_err(|error| error.to_string())
}
