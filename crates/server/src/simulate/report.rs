//! Reports of a simulation: text, JSON and HTML.

mod charts;
pub(crate) mod html;
pub(crate) mod json;
pub(crate) mod text;

/// Formats a share in percent with two decimals; with three below a hundredth of a percent.
pub(super) fn share(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".to_owned();
    }
    let percent = part as f64 * 100.0 / whole as f64;
    if part > 0 && percent < 0.01 { format!("{percent:.3}%") } else { format!("{percent:.2}%") }
}

/// Formats a number with separators.
pub(super) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a number of things: `1 line`, `2 lines`.
pub(super) fn counted(number: u64, one: &str) -> String {
    format!("{} {one}{}", thousands(number), if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_separators_and_shares_have_decimals() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(thousands), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(share(25_310, 8_120_004), "0.31%");
        assert_eq!(share(412, 10_000_000), "0.004%");
        assert_eq!((share(0, 5), share(0, 0)), ("0.00%".to_owned(), "-".to_owned()));
        assert_eq!(
            (counted(1, "line"), counted(1_000, "line")),
            ("1 line".to_owned(), "1,000 lines".to_owned())
        );
    }
}
