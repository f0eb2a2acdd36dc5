//! The shapes of single values: names, rates, durations, amounts.

use tollgate_core::EXACT_MAX;
use tollgate_document::Shape;
use tollgate_document::shape::{TextShape, number, text};

use super::super::notation;

/// What a duration looks like.
pub(super) const DURATION: &str =
    r"^\s*[0-9_]*\s*(us|ms|s|sec|seconds?|min|m|minutes?|h|hours?|d|days?|w|weeks?)\s*$";

pub(super) fn name(what: &'static str) -> TextShape {
    text(what).checked(notation::check_id).pattern("^[A-Za-z0-9._-]{1,64}$")
}

pub(super) fn attribute() -> TextShape {
    text("an attribute name").checked(notation::check_attribute_name).pattern("^[A-Za-z0-9._-]{1,64}$")
}

pub(super) fn chain() -> TextShape {
    text("attribute names separated by `|`")
        .checked(|text| notation::chain(text).map(drop))
        .pattern(r"^\s*[A-Za-z0-9._-]{1,64}\s*(\|\s*[A-Za-z0-9._-]{1,64}\s*)*$")
        .examples(&["tenant", "api_key | user | ip"])
}

pub(super) fn rate() -> TextShape {
    text("a rate like 100/min")
        .no_number()
        .checked(notation::check_rate)
        .pattern(r"^\s*[0-9_]+\s*/.*$")
        .examples(&["2/s", "100/min", "5/10min"])
}

pub(super) fn duration() -> TextShape {
    text("a duration like 30s")
        .no_number()
        .checked(notation::check_duration)
        .pattern(DURATION)
        .examples(&["30s", "10min", "1h"])
}

pub(super) fn amount() -> Shape {
    number(1, EXACT_MAX)
}
