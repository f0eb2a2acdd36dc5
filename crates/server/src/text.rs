//! Text from outside, made safe to print.

/// Escapes control characters, which a terminal would obey.
pub(crate) fn escape_control(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if c.is_control() { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

/// Cuts a value to at most `chars_max` characters for a log, and escapes its control characters.
pub(crate) fn excerpt(value: &str, chars_max: usize) -> String {
    match value.char_indices().nth(chars_max) {
        Some((end, _)) => escape_control(&value[..end]) + "…",
        None => escape_control(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_is_short_and_cannot_start_a_new_line() {
        assert_eq!(excerpt("a\n{\"event\":1}\u{1b}[2J", 64), "a\\n{\"event\":1}\\u{1b}[2J");
        assert_eq!(excerpt(&"x".repeat(65), 64), format!("{}…", "x".repeat(64)));
        assert_eq!(excerpt(&"ä".repeat(64), 64), "ä".repeat(64));
    }
}
