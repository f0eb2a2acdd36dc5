//! Numbers for people.

/// Formats a number with a comma between thousands: `1,234,567`.
pub fn thousands(number: u64) -> String {
    match number {
        0..1_000 => number.to_string(),
        _ => format!("{},{:03}", thousands(number / 1_000), number % 1_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_separated_by_commas() {
        for (number, text) in
            [(0, "0"), (999, "999"), (1_000, "1,000"), (1_002_003, "1,002,003"), (12_345_678, "12,345,678")]
        {
            assert_eq!(thousands(number), text);
        }
    }
}
