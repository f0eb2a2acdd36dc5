//! Whole numbers with optional separators: `100`, `10_000`.

/// Text that is not a whole number.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("invalid whole number {found:?}; write digits, optionally separated by `_`")]
pub struct NotANumber {
    /// The text.
    pub found: String,
}

/// Parses `100` or `10_000`.
pub fn number(text: &str) -> Result<u64, NotANumber> {
    let invalid = || NotANumber { found: text.to_owned() };
    let digits: String = text.trim().chars().filter(|&c| c != '_').collect();
    if digits.bytes().all(|byte| byte.is_ascii_digit()) {
        digits.parse().map_err(|_| invalid())
    } else {
        Err(invalid())
    }
}
