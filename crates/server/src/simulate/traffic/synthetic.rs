//! Synthetic traffic: `rate=500/s,arrivals=poisson,subjects=2000,zipf=1.1,for=1h`.

use tollgate::core::rules::RuleSet;
use tollgate::core::{Span, Time};
use tollgate::shorthand;

use super::mapping::{Mapping, Source};
use super::records::{Batch, Facts, Names};

/// Requests of a batch.
const BATCH_RECORDS: usize = 1 << 13;
/// A table of this many subjects takes 40 MB.
const SUBJECTS_MAX: u64 = 5_000_000;
const REQUESTS_MAX: f64 = 1e10;
/// 2026-01-01T00:00:00Z. A fixed time makes runs repeatable.
const START: Time = Time::from_us(1_767_225_600_000_000);

/// What synthetic requests are like.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Synthetic {
    text: String,
    per_second: f64,
    poisson: bool,
    subjects: u64,
    zipf: f64,
    lasts: Span,
    seed: u64,
}

impl Synthetic {
    /// Parses `rate=500/s,arrivals=poisson,subjects=2000,zipf=1.1,for=1h,seed=1`. Only the rate is required.
    pub(crate) fn parse(text: &str) -> Result<Synthetic, String> {
        let mut parsed = Synthetic {
            text: text.to_owned(),
            per_second: 0.0,
            poisson: true,
            subjects: 1_000,
            zipf: 1.0,
            lasts: Span::from_secs(3_600),
            seed: 1,
        };
        for part in text.split(',') {
            let (key, value) =
                part.split_once('=').ok_or_else(|| format!("write NAME=VALUE instead of `{part}`"))?;
            let invalid = |allowed: &str| format!("invalid {key} `{value}`; write {allowed}");
            match key.trim() {
                "rate" => {
                    parsed.per_second = rate(value).ok_or_else(|| invalid("a rate like 500/s or 30/min"))?
                }
                "arrivals" => {
                    parsed.poisson = match value {
                        "poisson" => true,
                        "even" => false,
                        _ => return Err(invalid("poisson or even")),
                    }
                }
                "subjects" => {
                    let number = value.replace('_', "").parse().ok();
                    let in_range = number.filter(|number| (1..=SUBJECTS_MAX).contains(number));
                    parsed.subjects = in_range.ok_or_else(|| invalid("a number from 1 to 5000000"))?;
                }
                "zipf" => {
                    let exponent = value.parse().ok().filter(|exponent| (0.0..=10.0).contains(exponent));
                    parsed.zipf = exponent.ok_or_else(|| invalid("an exponent from 0 to 10"))?;
                }
                "for" => {
                    parsed.lasts = shorthand::span(value).map_err(|error| format!("invalid for: {error}"))?
                }
                "seed" => parsed.seed = value.parse().map_err(|_| invalid("a whole number"))?,
                other => {
                    return Err(format!(
                        "unknown part `{other}`; use rate, arrivals, subjects, zipf, for and seed"
                    ));
                }
            }
        }
        if parsed.per_second <= 0.0 {
            return Err("missing rate; write rate=500/s".to_owned());
        }
        if parsed.per_second * parsed.lasts.us() as f64 / 1e6 > REQUESTS_MAX {
            return Err(
                "more than ten thousand million requests; shorten `for`, or lower the rate".to_owned()
            );
        }
        Ok(parsed)
    }

    pub(in crate::simulate) fn text(&self) -> &str {
        &self.text
    }

    /// The number of requests, about.
    pub(in crate::simulate) fn requests(&self) -> u64 {
        (self.per_second * self.lasts.us() as f64 / 1e6) as u64
    }

    /// Passes on batches of requests. Every attribute that some rule counts by has the number of the request's subject;
    /// constants of the mapping are set as they are.
    pub(in crate::simulate) fn generate(
        &self,
        sets: &[&RuleSet],
        names: &Names,
        mapping: &Mapping,
        mut emit: impl FnMut(Batch) -> bool,
    ) {
        let constant = |name: &str| {
            let mapped = mapping.attributes.iter().rev().find(|mapped| mapped.attribute == name)?;
            match &mapped.source {
                Source::Constant(value) => Some(value.clone()),
                _ => None,
            }
        };
        let counted = |name: &String| {
            sets.iter()
                .flat_map(|rules| rules.rules())
                .any(|rule| rule.per.parts.iter().flatten().any(|part| part == name))
        };
        let constants: Vec<(u16, String)> =
            (0..).zip(names).filter_map(|(number, name)| Some((number, constant(name)?))).collect();
        let subjects: Vec<(u16, bool)> = (0..)
            .zip(names)
            .filter(|(_, name)| constant(name).is_none() && counted(name))
            .map(|(number, name)| (number, name == "ip"))
            .collect();
        let ranks = ranks(self.subjects, self.zipf);
        let mut random = Random(self.seed);
        let (gap_us, end) = (1e6 / self.per_second, START.plus(self.lasts));
        let (mut offset_us, mut batch) = (0.0, Batch::default());
        loop {
            let at = START.plus(Span::from_us(offset_us as u64));
            if at >= end {
                break;
            }
            let drawn = random.unit() * ranks.last().copied().unwrap_or_default();
            let subject = ranks.partition_point(|&sum| sum <= drawn);
            for (name, value) in &constants {
                batch.push_value(*name, value);
            }
            for &(name, is_address) in &subjects {
                let value = if is_address {
                    let [_, b, c, d] = (subject as u32).to_be_bytes();
                    format!("10.{b}.{c}.{d}")
                } else {
                    format!("subject-{subject}")
                };
                batch.push_value(name, &value);
            }
            batch.finish(Facts { at, whole_second: false, duration_us: None, cost: None });
            if batch.len() == BATCH_RECORDS && !emit(std::mem::take(&mut batch)) {
                return;
            }
            offset_us += if self.poisson { -(1.0 - random.unit()).ln() * gap_us } else { gap_us };
        }
        if !batch.is_empty() {
            emit(batch);
        }
    }
}

/// The running sums of the weights of all subjects.
fn ranks(subjects: u64, exponent: f64) -> Vec<f64> {
    let mut sum = 0.0;
    let weights = (1..=subjects).map(|rank| {
        sum += (rank as f64).powf(-exponent);
        sum
    });
    weights.collect()
}

fn rate(text: &str) -> Option<f64> {
    let (amount, unit) = text.split_once('/')?;
    let seconds = match unit {
        "s" => 1.0,
        "min" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        _ => return None,
    };
    let amount: f64 = amount.replace('_', "").parse().ok()?;
    (amount.is_finite() && amount > 0.0).then_some(amount / seconds)
}

/// SplitMix64: repeatable, and good enough for arrivals.
struct Random(u64);

impl Random {
    /// A number from 0 to 1, without 1.
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ mixed >> 31) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_descriptions_are_refused() {
        for text in [
            "",
            "rate",
            "rate=x",
            "rate=0/s",
            "rate=1/y",
            "rate=1/s,arrivals=odd",
            "rate=1/s,subjects=0",
            "rate=1/s,zipf=-1",
            "rate=1/s,for=x",
            "rate=1/s,x=1",
            "rate=1e9/s,for=30d",
            "subjects=5",
        ] {
            assert!(Synthetic::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn arrivals_have_the_rate_and_subjects_the_skew() {
        let traffic = Synthetic::parse("rate=500/s,arrivals=poisson,subjects=2000,zipf=1.1,for=10min")
            .expect("it is valid");
        let source = tollgate_document::Source::new(
            "rules",
            b"{ version: 1, rules: [{ id: a, per: user, limit: { fixed-window: 1/s } }] }",
        );
        let rules = tollgate::rules::load(&source, &mut tollgate_document::Problems::new()).expect("rules");
        let names = vec!["user".to_owned()];
        let (mut number, mut first, mut gaps) = (0_u64, 0_u64, Vec::new());
        let mut last = START;
        traffic.generate(&[&rules], &names, &Mapping::default(), |batch| {
            for index in 0..batch.len() {
                let record = batch.record(index);
                number += 1;
                first += u64::from(record.attributes(&names).get("user") == Some("subject-0"));
                gaps.push((record.at() - last).us() as f64);
                last = record.at();
            }
            true
        });
        assert!((295_000..305_000).contains(&number), "{number}");
        // The share of the first of 2,000 with exponent 1.1 is 1 / sum(rank^-1.1) = 0.16925.
        let share = first as f64 / number as f64;
        assert!((0.166..0.173).contains(&share), "{share}");
        // Gaps of Poisson arrivals deviate by their mean.
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((0.95..1.05).contains(&(variance.sqrt() / mean)), "{}", variance.sqrt() / mean);
    }
}
