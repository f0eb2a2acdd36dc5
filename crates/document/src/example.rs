//! A shape that uses every feature. The tests share it.

use std::sync::LazyLock;

use super::shape::{Shape, choice, fields, list, map_of, number, one_of, text};
use super::{Problems, Source, check, parse};

fn rate(text: &str) -> Result<(), String> {
    let is_rate = text.split_once('/').is_some_and(|(amount, period)| {
        amount.bytes().all(|byte| byte.is_ascii_digit())
            && !amount.is_empty()
            && ["s", "min", "h", "d"].contains(&period.trim_start_matches(|c: char| c.is_ascii_digit()))
    });
    if is_rate {
        return Ok(());
    }
    Err(format!("invalid rate {text:?}; write an amount, a slash and a duration, like 100/min or 5/10s"))
}

fn lowercase(text: &str) -> Result<(), String> {
    let plain =
        !text.is_empty() && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    if plain { Ok(()) } else { Err(format!("invalid name {text:?}; use a-z, 0-9 and -")) }
}

static CONDITION: LazyLock<Shape> = LazyLock::new(|| {
    let value = one_of("a condition")
        .or("Equal to this.", text("a text"))
        .or("Equal to one of these.", list(text("a text")).at_least(1))
        .or("Not this.", fields("a negation").required("not", condition(), "What must not hold."));
    map_of("attributes and what they must be", text("an attribute").checked(lowercase), value).into()
});

/// A shape that contains itself.
fn condition() -> Shape {
    Shape::Named("condition", || &CONDITION)
}

/// A simplified rules file.
pub(super) fn file() -> Shape {
    let rate_text = || text("a rate like 100/min").checked(rate).examples(&["2/s", "100/min"]).no_number();
    let limit = one_of("a limit")
        .or("Refuses everything.", choice(&[("deny", "Nothing is admitted.")]))
        .or("A bucket in short form.", rate_text())
        .or(
            "A token bucket.",
            fields("a token bucket").required("token-bucket", rate_text(), "The refill rate.").optional(
                "burst",
                number(1, 1_000_000),
                "The capacity.",
            ),
        )
        .or(
            "A sliding window.",
            fields("a sliding window").required("sliding-window", rate_text(), "The limit.").optional(
                "buckets",
                number(1, 60),
                "The number of buckets.",
            ),
        );
    let rule = fields("a rule")
        .required("id", text("a name").checked(lowercase).pattern("^[a-z0-9-]+$"), "The name of the rule.")
        .required("limit", limit, "How much is admitted.")
        .optional("per", list(text("an attribute")).at_least(1).or_one(), "The attributes to count by.")
        .optional("match", condition(), "Which requests it applies to.")
        .optional("mode", choice(&[("enforce", "Refuse."), ("shadow", "Only count.")]), "Whether it refuses.")
        .optional("sticky", Shape::Bool, "Whether it is kept.")
        .optional(
            "labels",
            fields("labels").optional("team", text("a team"), "The owner.").rest(Shape::Any),
            "Notes.",
        );
    fields("a rules file")
        .required("version", number(1, 1), "The version of this format.")
        .required("rules", list(rule), "The rules.")
        .into()
}

/// All problems of a text, formatted without colours.
pub(super) fn rendered(text: &str) -> String {
    let source = Source::new("rules.yaml", text.as_bytes());
    problems(&source).render(&source, super::Colour::Plain)
}

/// All problems of a source.
pub(super) fn problems(source: &Source) -> Problems {
    let mut problems = Problems::new();
    if let Some(node) = parse(source, &mut problems) {
        check(&file(), &node, &mut problems);
    }
    problems
}

/// `line:column code` of every problem of a text.
pub(super) fn found(text: &str) -> Vec<String> {
    let source = Source::new("rules.yaml", text.as_bytes());
    let position = |span: super::SourceSpan| source.position(span.start);
    problems(&source)
        .in_order()
        .iter()
        .map(|problem| {
            let at = position(problem.label.span);
            format!("{}:{} {}", at.line, at.column, problem.code)
        })
        .collect()
}
