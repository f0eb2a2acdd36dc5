//! Performance targets and whether they were met.

use super::table::{Table, number, or_dash};

/// A figure and its upper bound.
pub(super) struct Target {
    pub(super) what: &'static str,
    pub(super) at_most: f64,
    /// `None` if its rows were not run.
    pub(super) found: Option<f64>,
}

impl Target {
    /// `pass`, `fail` or `not measured`.
    pub(super) fn verdict(&self) -> &'static str {
        match self.found {
            None => "not measured",
            Some(found) if found <= self.at_most => "pass",
            Some(_) => "fail",
        }
    }
}

/// One line per target.
pub(super) fn table(targets: &[Target]) -> Table {
    let mut table = Table::new(["target", "at most", "found", "result"]);
    for target in targets {
        let found = or_dash(target.found, number);
        let verdict = target.verdict().to_owned();
        table.lines.push(vec![target.what.to_owned(), number(target.at_most), found, verdict]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_passes_at_its_bound_and_fails_beyond_it() {
        let verdict = |found| Target { what: "", at_most: 0.5, found }.verdict();
        assert_eq!(
            [verdict(Some(0.5)), verdict(Some(0.501)), verdict(None)],
            ["pass", "fail", "not measured"]
        );
    }
}
