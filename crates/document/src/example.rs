//! A shape with every feature in it, which the tests share.

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
    Err(format!(
        "{text:?} is not a rate; write an amount, a slash and a length of time, like 100/min or 5/10s"
    ))
}

fn lowercase(text: &str) -> Result<(), String> {
    let plain =
        !text.is_empty() && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    if plain { Ok(()) } else { Err(format!("{text:?} is not a name; names have a-z, 0-9 and -")) }
}

static CONDITION: LazyLock<Shape> = LazyLock::new(|| {
    let value = one_of("a condition")
        .or("Equal to this.", text("a text"))
        .or("Equal to one of these.", list(text("a text")).at_least(1))
        .or("Not this.", fields("a negation").required("not", condition(), "What must not hold."));
    map_of("attributes and what they must be", text("an attribute").checked(lowercase), value).into()
});

/// A shape that stands in itself.
fn condition() -> Shape {
    Shape::Named("condition", || &CONDITION)
}

/// A file of rules, simplified.
pub(super) fn file() -> Shape {
    let speed = || text("a rate like 100/min").checked(rate).examples(&["2/s", "100/min"]).no_number();
    let limit = one_of("a limit")
        .or("Refuses everything.", choice(&[("deny", "Nothing is admitted.")]))
        .or("A bucket in short.", speed())
        .or(
            "A token bucket.",
            fields("a token bucket").required("token-bucket", speed(), "How fast it refills.").optional(
                "burst",
                number(1, 1_000_000),
                "How much it holds.",
            ),
        )
        .or(
            "A sliding window.",
            fields("a sliding window").required("sliding-window", speed(), "How much fits.").optional(
                "buckets",
                number(1, 60),
                "How finely it is counted.",
            ),
        );
    let rule = fields("a rule")
        .required("id", text("a name").checked(lowercase).pattern("^[a-z0-9-]+$"), "What the rule is called.")
        .required("limit", limit, "How much is admitted.")
        .optional("per", list(text("an attribute")).at_least(1).or_one(), "Who shares the limit.")
        .optional("match", condition(), "Which requests it is for.")
        .optional(
            "mode",
            choice(&[("enforce", "Refuse."), ("shadow", "Only count.")]),
            "What a refusal does.",
        )
        .optional("sticky", Shape::Bool, "Whether it stays.")
        .optional(
            "labels",
            fields("labels").optional("team", text("a team"), "Who owns it.").rest(Shape::Any),
            "Notes.",
        );
    fields("a rules file")
        .required("version", number(1, 1), "The version of this format.")
        .required("rules", list(rule), "The rules.")
        .into()
}

/// All problems of a text, on paper and without colours.
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
    let position = |place: super::Place| source.position(place.start);
    problems(&source)
        .in_order()
        .iter()
        .map(|problem| {
            let at = position(problem.label.place);
            format!("{}:{} {}", at.line, at.column, problem.code)
        })
        .collect()
}
