//! Formats numbers for the pages.

use tollgate_bench_report::thousands;

/// Returns `part` of `whole` in per cent, with one decimal.
pub(super) fn per_cent(part: u64, whole: u64) -> String {
    let tenths = (part * 1_000 + whole / 2) / whole;
    format!("{}.{}", tenths / 10, tenths % 10)
}

/// Returns the number with a comma between thousands.
pub(super) fn count(number: usize) -> String {
    thousands(number as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_have_one_decimal() {
        assert_eq!(per_cent(1, 3), "33.3");
        assert_eq!(per_cent(2, 3), "66.7");
        assert_eq!(per_cent(0, 3), "0.0");
    }
}
