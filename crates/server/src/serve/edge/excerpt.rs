//! What a caller sent, as errors repeat it: quoted, escaped and cut.

use std::fmt;

/// Characters of the input that an error repeats.
const CHARS_MAX: usize = 40;

/// The beginning of a text, for an error message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Excerpt {
    start: String,
    is_cut: bool,
}

impl Excerpt {
    pub(crate) fn of(text: &str) -> Excerpt {
        let end = text.char_indices().nth(CHARS_MAX).map(|(end, _)| end);
        Excerpt { start: text[..end.unwrap_or(text.len())].to_owned(), is_cut: end.is_some() }
    }
}

impl fmt::Display for Excerpt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quoted = format!("{:?}", self.start);
        let dots = if self.is_cut { "…" } else { "" };
        write!(f, "{}{dots}\"", &quoted[..quoted.len() - 1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_is_short_and_stays_on_its_line() {
        assert_eq!(Excerpt::of("a\r\n\0\"").to_string(), r#""a\r\n\0\"""#);
        assert_eq!(Excerpt::of(&"x".repeat(1_000)).to_string(), format!("\"{}…\"", "x".repeat(CHARS_MAX)));
    }
}
