//! Formats numbers for the pages.

/// Returns `part` of `whole` in per cent, with one decimal.
pub(super) fn per_cent(part: u64, whole: u64) -> String {
    let tenths = (part * 1_000 + whole / 2) / whole;
    format!("{}.{}", tenths / 10, tenths % 10)
}

/// Returns the number with a comma between thousands.
pub(super) fn count(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_commas_and_percentages_one_decimal() {
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (12_345_678, "12,345,678")] {
            assert_eq!(count(number), text);
        }
        assert_eq!(per_cent(1, 3), "33.3");
        assert_eq!(per_cent(2, 3), "66.7");
        assert_eq!(per_cent(0, 3), "0.0");
    }
}
