//! Thresholds: `--require 'refused{rule=login} < 1%'`.

use std::cmp::Ordering;
use std::fmt;

use super::results::Results;

/// A condition on the results.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Requirement {
    text: String,
    metric: Metric,
    rule: Option<String>,
    comparison: Comparison,
    bound: f64,
    /// Whether the bound is a share in percent.
    is_share: bool,
}

/// What is compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Metric {
    Refused,
    ShadowRefused,
    NewlyRefused,
    NewlyAllowed,
    SubjectsHit,
    PeakSubjects,
    Undecided,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Comparison {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Equal,
}

/// Whether a requirement holds, and the value that was found.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Verdict {
    pub(super) requirement: String,
    pub(super) passed: bool,
    pub(super) found: String,
}

const METRICS: &[(&str, Metric)] = &[
    ("refused", Metric::Refused),
    ("shadow_refused", Metric::ShadowRefused),
    ("newly_refused", Metric::NewlyRefused),
    ("newly_allowed", Metric::NewlyAllowed),
    ("subjects_hit", Metric::SubjectsHit),
    ("peak_subjects", Metric::PeakSubjects),
    ("undecided", Metric::Undecided),
];

const COMPARISONS: &[(&str, Comparison)] = &[
    ("<=", Comparison::LessOrEqual),
    (">=", Comparison::GreaterOrEqual),
    ("==", Comparison::Equal),
    ("<", Comparison::Less),
    (">", Comparison::Greater),
];

impl Requirement {
    /// Parses `METRIC < NUMBER`, `METRIC{rule=ID} < SHARE%` and the like.
    pub(crate) fn parse(text: &str) -> Result<Requirement, String> {
        let hint = || {
            let names: Vec<_> = METRICS.iter().map(|(name, _)| *name).collect();
            format!(
                "write METRIC < NUMBER or METRIC{{rule=ID}} < SHARE%; the metrics are {}",
                names.join(", ")
            )
        };
        let found =
            COMPARISONS.iter().filter_map(|&(sign, comparison)| Some((text.find(sign)?, sign, comparison)));
        // The first sign; of two at one place, the longer one.
        let (at, sign, comparison) =
            found.min_by_key(|(at, sign, _)| (*at, std::cmp::Reverse(sign.len()))).ok_or_else(hint)?;
        let (left, right) = (text[..at].trim(), text[at + sign.len()..].trim());
        let (name, rule) = match left.split_once('{') {
            None => (left, None),
            Some((name, rest)) => {
                let rule = rest.strip_suffix('}').and_then(|rest| rest.trim().strip_prefix("rule="));
                let rule = rule.map(|rule| rule.trim().trim_matches('"')).filter(|rule| !rule.is_empty());
                (name.trim(), Some(rule.ok_or_else(hint)?.to_owned()))
            }
        };
        let metric = METRICS.iter().find(|(known, _)| *known == name).ok_or_else(hint)?.1;
        let (number, is_share) = match right.strip_suffix('%') {
            Some(number) => (number.trim_end(), true),
            None => (right, false),
        };
        let bound: f64 = number.replace('_', "").parse().map_err(|_| hint())?;
        if !(bound.is_finite() && bound >= 0.0) {
            return Err(hint());
        }
        let counts_subjects = matches!(
            metric,
            Metric::NewlyRefused | Metric::NewlyAllowed | Metric::SubjectsHit | Metric::PeakSubjects
        );
        if is_share && counts_subjects {
            return Err(format!("`{name}` is a number of subjects; write it without %"));
        }
        let is_of_rule = matches!(metric, Metric::SubjectsHit | Metric::PeakSubjects);
        let is_of_set = matches!(metric, Metric::NewlyRefused | Metric::NewlyAllowed | Metric::Undecided);
        if (is_of_rule && rule.is_none()) || (is_of_set && rule.is_some()) {
            return Err(format!(
                "`{name}` is {}",
                if is_of_rule { "a number of one rule; write {rule=ID}" } else { "not a number of one rule" }
            ));
        }
        Ok(Requirement { text: text.trim().to_owned(), metric, rule, comparison, bound, is_share })
    }

    /// The rule that it names.
    pub(crate) fn rule(&self) -> Option<&str> {
        self.rule.as_deref()
    }

    /// Whether it compares two rule sets.
    pub(crate) const fn needs_two(&self) -> bool {
        matches!(self.metric, Metric::NewlyRefused | Metric::NewlyAllowed)
    }

    /// The share in percent, if it limits the share of refusals from above.
    pub(crate) fn refused_share_max(&self) -> Option<f64> {
        let below = matches!(self.comparison, Comparison::Less | Comparison::LessOrEqual);
        (self.metric == Metric::Refused && self.is_share && below).then_some(self.bound)
    }

    /// Compares it with the results.
    pub(super) fn judge(&self, results: &Results) -> Verdict {
        let of_rule = self.rule.as_deref().and_then(|id| results.new.rules.iter().find(|rule| rule.id == id));
        let (count, of) = match (self.metric, of_rule) {
            (Metric::Refused, Some(rule)) => (rule.refused, rule.checks),
            (Metric::Refused, None) => (results.new.refused, results.new.requests),
            (Metric::ShadowRefused, Some(rule)) => (rule.shadow_refused, rule.checks),
            (Metric::ShadowRefused, None) => {
                (results.new.rules.iter().map(|rule| rule.shadow_refused).sum(), results.new.requests)
            }
            (Metric::NewlyRefused, _) => (results.newly_refused.len() as u64, 1),
            (Metric::NewlyAllowed, _) => (results.newly_allowed.len() as u64, 1),
            (Metric::SubjectsHit, rule) => (rule.map_or(0, |rule| rule.subjects_hit), 1),
            (Metric::PeakSubjects, rule) => (rule.map_or(0, |rule| rule.peak_subjects), 1),
            (Metric::Undecided, _) => {
                (results.new.undecided.iter().map(|(_, count)| count).sum(), results.new.requests)
            }
        };
        // Both sides are exact in 128 bits: a share of exactly the bound is not below it.
        let value = if self.is_share { count as f64 * 100.0 } else { count as f64 };
        let bound = if self.is_share { self.bound * of as f64 } else { self.bound };
        let order = value.partial_cmp(&bound).unwrap_or(Ordering::Equal);
        let passed = match self.comparison {
            Comparison::Less => {
                order == Ordering::Less || (self.is_share && of == 0 && count == 0 && self.bound > 0.0)
            }
            Comparison::LessOrEqual => order != Ordering::Greater,
            Comparison::Greater => order == Ordering::Greater,
            Comparison::GreaterOrEqual => order != Ordering::Less,
            Comparison::Equal => order == Ordering::Equal,
        };
        let found =
            if self.is_share { super::report::share(count, of) } else { super::report::thousands(count) };
        Verdict { requirement: self.text.clone(), passed, found }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requirements_have_a_metric_a_comparison_and_a_bound() {
        for text in [
            "refused < 0.5%",
            "refused{rule=login} <= 1%",
            "newly_refused == 0",
            "peak_subjects{rule=a} < 1_000",
        ] {
            assert_eq!(Requirement::parse(text).expect(text).to_string(), text);
        }
        let parsed = Requirement::parse("refused{ rule=login } <= 1 %").expect("it is valid");
        assert_eq!(
            (parsed.rule(), parsed.comparison, parsed.bound, parsed.is_share),
            (Some("login"), Comparison::LessOrEqual, 1.0, true)
        );
        for text in [
            "",
            "refused",
            "refused < x",
            "refuse < 1%",
            "newly_refused < 1%",
            "subjects_hit < 1",
            "refused{rule=} < 1",
            "undecided{rule=a} < 1",
            "refused < -1",
            "refused < NaN",
        ] {
            assert!(Requirement::parse(text).is_err(), "{text}");
        }
    }
}
