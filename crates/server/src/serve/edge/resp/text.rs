//! Input of callers in errors, and numbers in arguments.

use std::fmt;

/// Bytes in quotes, escaped and cut.
pub(crate) struct Quoted<'a>(pub(crate) &'a [u8]);

const SHOWN_MAX: usize = 48;

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.0.get(..SHOWN_MAX).unwrap_or(self.0);
        let rest = if shown.len() < self.0.len() { "…" } else { "" };
        write!(f, "'{}{rest}'", shown.escape_ascii())
    }
}

/// Numbers of this many digits always fit.
const DIGITS_THAT_FIT: usize = 18;

/// Parses an integer, with or without a sign.
#[inline]
pub(crate) fn integer(text: &[u8]) -> Option<i64> {
    if (1..=DIGITS_THAT_FIT).contains(&text.len()) {
        let mut value = 0;
        for digit in text {
            let digit = digit.wrapping_sub(b'0');
            if digit > 9 {
                return any_integer(text);
            }
            value = 10 * value + i64::from(digit);
        }
        return Some(value);
    }
    any_integer(text)
}

/// Parses integers with a sign and long ones.
#[inline(never)]
fn any_integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() {
        return None;
    }
    let mut value = 0_i64;
    for digit in digits {
        let digit = i64::from(digit.wrapping_sub(b'0'));
        if digit > 9 {
            return None;
        }
        // Negative, because there is one more negative number than positive ones.
        value = value.checked_mul(10)?.checked_sub(digit)?;
    }
    if negative { Some(value) } else { value.checked_neg() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_parsed_exactly_or_rejected() {
        for (text, expected) in [
            ("0", Some(0)),
            ("+15", Some(15)),
            ("-1", Some(-1)),
            ("007", Some(7)),
            ("999999999999999999", Some(999_999_999_999_999_999)),
            ("00000000000000000000000000000012", Some(12)),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("-9223372036854775809", None),
            ("", None),
            ("-", None),
            ("+-1", None),
            (" 1", None),
            ("1.5", None),
            ("1e3", None),
            ("٣", None),
        ] {
            assert_eq!(integer(text.as_bytes()), expected, "{text:?}");
        }
    }

    #[test]
    fn the_fast_path_parses_as_the_general_one() {
        let mut texts = vec![Vec::new()];
        for _ in 0..4 {
            let longer = texts.iter().flat_map(|text| b"019+-:/ ".map(|byte| [&text[..], &[byte]].concat()));
            texts = longer.collect();
            for text in &texts {
                assert_eq!(integer(text), any_integer(text), "{text:?}");
            }
        }
        for len in 1..=20 {
            for digit in *b"019" {
                let text = vec![digit; len];
                assert_eq!(integer(&text), any_integer(&text), "{len} times {digit}");
            }
        }
    }

    #[test]
    fn quoted_input_is_short_and_stays_on_its_line() {
        assert_eq!(Quoted(b"a\r\n\0'\xff").to_string(), r"'a\r\n\x00\'\xff'");
        let long = Quoted(&[b'x'; 1_000]).to_string();
        assert_eq!(long, format!("'{}…'", "x".repeat(SHOWN_MAX)));
    }
}
