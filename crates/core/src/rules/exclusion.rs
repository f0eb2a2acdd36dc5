//! A condition that accepts values except some of them.

use super::condition::Test;

/// Accepts the values that pass a test, except those that pass one of several others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Exclusion {
    base: Test,
    /// Excluded values, sorted, so that thousands of them cost a few comparisons.
    values: Vec<String>,
    /// Excluded patterns.
    patterns: Vec<Test>,
}

impl Exclusion {
    /// Creates a test that accepts what passes `base` and none of `excluded`.
    pub fn new(base: Test, excluded: impl IntoIterator<Item = Test>) -> Exclusion {
        let (mut values, mut patterns) = (Vec::new(), Vec::new());
        for test in excluded {
            match test {
                Test::OneOf(some) => values.extend(some),
                pattern => patterns.push(pattern),
            }
        }
        values.sort_unstable();
        values.dedup();
        Exclusion { base, values, patterns }
    }

    /// Returns the test that values must pass.
    pub const fn base(&self) -> &Test {
        &self.base
    }

    /// Returns the excluded values, sorted.
    pub fn values(&self) -> &[String] {
        &self.values
    }

    /// Returns the excluded patterns.
    pub fn patterns(&self) -> &[Test] {
        &self.patterns
    }

    /// Whether the value passes the test and is not excluded.
    pub fn holds(&self, value: &str) -> bool {
        self.base.holds(value)
            && self.values.binary_search_by(|excluded| excluded.as_str().cmp(value)).is_err()
            && !self.patterns.iter().any(|pattern| pattern.holds(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excluded_values_and_patterns_do_not_pass() {
        let one_of = |values: &[&str]| Test::OneOf(values.iter().map(|&value| value.to_owned()).collect());
        let exclusion = Exclusion::new(
            Test::Prefix("a".to_owned()),
            [one_of(&["ax", "ab"]), Test::Glob("a*z".to_owned()), one_of(&["ac"])],
        );
        for (value, holds) in [
            ("a", true),
            ("ad", true),
            ("ab", false),
            ("ac", false),
            ("ax", false),
            ("axx", true),
            ("abz", false),
            ("b", false),
            ("", false),
        ] {
            assert_eq!(exclusion.holds(value), holds, "{value}");
        }
    }
}
